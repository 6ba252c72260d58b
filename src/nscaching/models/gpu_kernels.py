"""Scoring candidates on a GPU without gathering them: one Triton kernel a family.

The same functions as in :mod:`nscaching.models.cpu_kernels`. A program scores a block of the
candidates of one query; the table's rows go straight from memory into registers. A negative id is
padding, which the caller masks; its score is anything.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nscaching.models.all_pairs_gpu import all_complex_distances, all_distances

__all__ = [
    "all_complex_distances",
    "all_distances",
    "bilinear_parts",
    "bilinear_query",
    "complex_distance",
    "dot_product",
    "translational",
]

#: Candidates and floats of a row that one warp takes at once: the fastest of 60 tilings on an H200.
_BLOCK_K, _MAX_BLOCK_D, _WARPS = 8, 256, 1


@triton.jit
def _dot_product(
    query,
    table,
    ids,
    scores,
    k,
    width: tl.constexpr,
    stride: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = j < k
    entity = tl.load(ids + i * k + j, mask=inside, other=-1)
    if tl.max(entity, axis=0) < 0:
        return
    row = tl.maximum(entity, 0).to(tl.int64) * stride
    total = tl.zeros([BLOCK_K], dtype=tl.float32)
    for start in range(0, width, BLOCK_D):
        d = start + tl.arange(0, BLOCK_D)
        q = tl.load(query + i * width + d, mask=d < width, other=0.0)
        x = tl.load(
            table + row[:, None] + d[None, :],
            mask=inside[:, None] & (d < width)[None, :],
            other=0.0,
        )
        total += tl.sum(q[None, :] * x, axis=1)
    tl.store(scores + i * k + j, total, mask=inside)


@triton.jit
def _translational(
    query,
    vector,
    table,
    ids,
    scores,
    k,
    dim: tl.constexpr,
    stride: tl.constexpr,
    NORM: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = j < k
    entity = tl.load(ids + i * k + j, mask=inside, other=-1)
    if tl.max(entity, axis=0) < 0:
        return
    row = tl.maximum(entity, 0).to(tl.int64) * stride
    square = tl.zeros([BLOCK_K], dtype=tl.float32)
    along = tl.zeros([BLOCK_K], dtype=tl.float32)
    for start in range(0, dim, BLOCK_D):
        d = start + tl.arange(0, BLOCK_D)
        there = inside[:, None] & (d < dim)[None, :]
        x = tl.load(table + row[:, None] + d[None, :], mask=there, other=0.0)
        square += tl.sum(x * x, axis=1)
        if KIND == 1:
            v = tl.load(vector + i * dim + d, mask=d < dim, other=0.0)
            along -= tl.sum(v[None, :] * x, axis=1)
        if KIND == 2:
            w = tl.load(table + row[:, None] + dim + d[None, :], mask=there, other=0.0)
            along += tl.sum(w * x, axis=1)
    scale = 1.0 / tl.maximum(tl.sqrt(square), 1e-12)
    along = along * scale
    total = tl.zeros([BLOCK_K], dtype=tl.float32)
    for start in range(0, dim, BLOCK_D):
        d = start + tl.arange(0, BLOCK_D)
        there = inside[:, None] & (d < dim)[None, :]
        x = tl.load(table + row[:, None] + d[None, :], mask=there, other=0.0)
        q = tl.load(query + i * dim + d, mask=d < dim, other=0.0)
        gap = q[None, :] - scale[:, None] * x
        if KIND != 0:
            v = tl.load(vector + i * dim + d, mask=d < dim, other=0.0)
            gap -= along[:, None] * v[None, :]
        if NORM == 1:
            total += tl.sum(tl.abs(gap), axis=1)
        else:
            total += tl.sum(gap * gap, axis=1)
    if NORM == 2:
        total = tl.sqrt(total)
    tl.store(scores + i * k + j, -total, mask=inside)


@triton.jit
def _complex_distance(
    query,
    table,
    ids,
    scores,
    k,
    dim: tl.constexpr,
    stride: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = j < k
    entity = tl.load(ids + i * k + j, mask=inside, other=-1)
    if tl.max(entity, axis=0) < 0:
        return
    row = tl.maximum(entity, 0).to(tl.int64) * stride
    total = tl.zeros([BLOCK_K], dtype=tl.float32)
    for start in range(0, dim, BLOCK_D):
        d = start + tl.arange(0, BLOCK_D)
        there = inside[:, None] & (d < dim)[None, :]
        place = table + row[:, None] + d[None, :]
        q_re = tl.load(query + i * 2 * dim + d, mask=d < dim, other=0.0)
        q_im = tl.load(query + i * 2 * dim + dim + d, mask=d < dim, other=0.0)
        re = q_re[None, :] - tl.load(place, mask=there, other=0.0)
        im = q_im[None, :] - tl.load(place + dim, mask=there, other=0.0)
        total += tl.sum(tl.where(there, tl.sqrt(re * re + im * im), 0.0), axis=1)
    tl.store(scores + i * k + j, -total, mask=inside)


def _launch(kernel: Any, arrays: list[Tensor], ids: Tensor, width: int, *constants: int) -> Tensor:
    """Run a kernel over (query, block of candidates)."""
    count, k = ids.shape
    scores = torch.empty(count, k, device=ids.device)
    block_d = min(_MAX_BLOCK_D, triton.next_power_of_2(width))
    table = arrays[-1]
    if count and k:
        kernel[(count, triton.cdiv(k, _BLOCK_K))](
            *arrays,
            ids,
            scores,
            k,
            width,
            table.shape[1],
            *constants,
            _BLOCK_K,
            block_d,
            num_warps=_WARPS,
        )
    return scores


def dot_product(query: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """``q . x``. Shapes: (b, q), (n, width), (b, k) -> (b, k)."""
    return _launch(_dot_product, [query, table], ids, query.shape[1])


def translational(
    query: Tensor, vector: Tensor, table: Tensor, ids: Tensor, norm: int, kind: int
) -> Tensor:
    """``-||q - view(x)||_p`` with ``x`` normalised. Shapes as :func:`dot_product`."""
    return _launch(_translational, [query, vector, table], ids, query.shape[1], norm, kind)


def complex_distance(query: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """``-sum_k |q_k - x_k|``. Shapes as :func:`dot_product`."""
    return _launch(_complex_distance, [query, table], ids, query.shape[1] // 2)


@triton.jit
def bilinear_parts(ha, hb, ra, rb, ta, tb, KIND: tl.constexpr):
    """Return the factors that a head, a relation and a tail meet in the score."""
    if KIND == 0:
        head_a, head_b = ra * ta, rb
        rel_a, rel_b = ha * ta, rb
        tail_a, tail_b = ra * ha, rb
    elif KIND == 1:
        head_a, head_b = ra * ta + rb * tb, ra * tb - rb * ta
        rel_a, rel_b = ha * ta + hb * tb, ha * tb - hb * ta
        tail_a, tail_b = ra * ha - rb * hb, ra * hb + rb * ha
    else:
        head_a, head_b = ra * tb, rb * ta
        rel_a, rel_b = ha * tb, hb * ta
        tail_a, tail_b = rb * hb, ra * ha
    return head_a, head_b, rel_a, rel_b, tail_a, tail_b


@triton.jit
def _bilinear_query(
    entity,
    relation,
    anchors,
    relations,
    queries,
    half: tl.constexpr,
    width: tl.constexpr,
    KIND: tl.constexpr,
    TAIL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    x = tl.load(anchors + i).to(tl.int64) * width
    r = tl.load(relations + i).to(tl.int64) * width
    d = tl.arange(0, BLOCK)
    low = d < half
    high = low & (KIND != 0)
    xa, xb = tl.load(entity + x + d, low, 0.0), tl.load(entity + x + half + d, high, 0.0)
    ra, rb = tl.load(relation + r + d, low, 0.0), tl.load(relation + r + half + d, high, 0.0)
    head_a, head_b, _, _, tail_a, tail_b = bilinear_parts(xa, xb, ra, rb, xa, xb, KIND)
    if TAIL:
        tl.store(queries + i * width + d, tail_a, mask=low)
        tl.store(queries + i * width + half + d, tail_b, mask=high)
    else:
        tl.store(queries + i * width + d, head_a, mask=low)
        tl.store(queries + i * width + half + d, head_b, mask=high)


def bilinear_query(
    entity: Tensor, relation: Tensor, anchors: Tensor, relations: Tensor, kind: int, tail: int
) -> Tensor:
    """Queries of a bilinear scoring function straight from the tables. Shape: (b, width)."""
    width = entity.shape[1]
    half = width if kind == 0 else width // 2
    queries = torch.empty(len(anchors), width, device=entity.device)
    block = triton.next_power_of_2(half)
    _bilinear_query[(len(anchors),)](
        entity, relation, anchors, relations, queries, half, width, kind, tail, block
    )
    return queries
