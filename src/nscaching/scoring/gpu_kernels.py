"""Scoring candidates on a GPU without gathering them: one Triton kernel a family.

The same functions as in :mod:`nscaching.scoring.cpu_kernels`. A program scores a block of the
candidates of one query; the table's rows go straight from memory into registers. A negative id is
padding, which the caller masks; its score is anything.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

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
def _bilinear_parts(  # the factors that a head, a relation and a tail meet in the score
    ha, hb, ra, rb, ta, tb, KIND: tl.constexpr
):
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
def _softplus(x):
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


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
    head_a, head_b, _, _, tail_a, tail_b = _bilinear_parts(xa, xb, ra, rb, xa, xb, KIND)
    if TAIL:
        tl.store(queries + i * width + d, tail_a, mask=low)
        tl.store(queries + i * width + half + d, tail_b, mask=high)
    else:
        tl.store(queries + i * width + d, head_a, mask=low)
        tl.store(queries + i * width + half + d, head_b, mask=high)


@triton.jit
def _bilinear_gradients(
    entity,
    relation,
    heads,
    relations,
    tails,
    negatives,
    replaces_head,
    weight,
    entity_rows,
    relation_rows,
    scores,
    losses,
    count,
    margin,
    half: tl.constexpr,
    width: tl.constexpr,
    K: tl.constexpr,
    KIND: tl.constexpr,
    RANKING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    low = d < half
    high = low & (KIND != 0)
    h = tl.load(heads + i).to(tl.int64) * width
    r = tl.load(relations + i).to(tl.int64) * width
    t = tl.load(tails + i).to(tl.int64) * width
    ha, hb = tl.load(entity + h + d, low, 0.0), tl.load(entity + h + half + d, high, 0.0)
    ra, rb = tl.load(relation + r + d, low, 0.0), tl.load(relation + r + half + d, high, 0.0)
    ta, tb = tl.load(entity + t + d, low, 0.0), tl.load(entity + t + half + d, high, 0.0)
    gha, ghb, gra, grb, gta, gtb = _bilinear_parts(ha, hb, ra, rb, ta, tb, KIND)
    positive = tl.sum(gra * ra, axis=0)
    if KIND != 0:
        positive += tl.sum(grb * rb, axis=0)
    slope = tl.zeros([], tl.float32)
    loss = tl.zeros([], tl.float32)
    if not RANKING:
        loss = _softplus(-positive)
        slope = -1.0 / (1.0 + tl.exp(positive))
    dha = tl.zeros([BLOCK], tl.float32)
    dhb = tl.zeros([BLOCK], tl.float32)
    dra = tl.zeros([BLOCK], tl.float32)
    drb = tl.zeros([BLOCK], tl.float32)
    dta = tl.zeros([BLOCK], tl.float32)
    dtb = tl.zeros([BLOCK], tl.float32)
    for j in tl.static_range(K):
        n = tl.load(negatives + i * K + j).to(tl.int64) * width
        swap = tl.load(replaces_head + i * K + j) != 0
        w = tl.load(weight + i * K + j)
        na, nb = tl.load(entity + n + d, low, 0.0), tl.load(entity + n + half + d, high, 0.0)
        xa, xb = tl.where(swap, na, ha), tl.where(swap, nb, hb)
        ya, yb = tl.where(swap, ta, na), tl.where(swap, tb, nb)
        nha, nhb, nra, nrb, nta, ntb = _bilinear_parts(xa, xb, ra, rb, ya, yb, KIND)
        negative = tl.sum(nra * ra, axis=0)
        if KIND != 0:
            negative += tl.sum(nrb * rb, axis=0)
        tl.store(scores + i * K + j, negative)
        if RANKING:
            gap = margin - positive + negative
            pull = tl.where(gap > 0, w, 0.0)
            loss += pull * gap
            slope -= pull
        else:
            pull = w / (1.0 + tl.exp(-negative))
            loss += w * _softplus(negative)
        dra += pull * nra
        drb += pull * nrb
        dha += tl.where(swap, 0.0, pull * nha)
        dhb += tl.where(swap, 0.0, pull * nhb)
        dta += tl.where(swap, pull * nta, 0.0)
        dtb += tl.where(swap, pull * ntb, 0.0)
        row = entity_rows + (2 * count + i * K + j) * width
        tl.store(row + d, pull * tl.where(swap, nha, nta), mask=low)
        tl.store(row + half + d, pull * tl.where(swap, nhb, ntb), mask=high)
    tl.store(losses + i, loss)
    tl.store(relation_rows + i * width + d, dra + slope * gra, mask=low)
    tl.store(relation_rows + i * width + half + d, drb + slope * grb, mask=high)
    tl.store(entity_rows + i * width + d, dha + slope * gha, mask=low)
    tl.store(entity_rows + i * width + half + d, dhb + slope * ghb, mask=high)
    tl.store(entity_rows + (count + i) * width + d, dta + slope * gta, mask=low)
    tl.store(entity_rows + (count + i) * width + half + d, dtb + slope * gtb, mask=high)


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


def bilinear_gradients(*arrays: Any) -> None:
    """Do what :func:`nscaching.scoring.cpu_kernels.bilinear_gradients` does, on a GPU."""
    *tensors, kind, margin = arrays
    entity, negatives = tensors[0], tensors[5]
    width = entity.shape[1]
    half = width if kind == 0 else width // 2
    count, k = negatives.shape
    block = triton.next_power_of_2(half)
    _bilinear_gradients[(count,)](
        *tensors, count, float(margin), half, width, k, kind, margin > 0, block
    )
