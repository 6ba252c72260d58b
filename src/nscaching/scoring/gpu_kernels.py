"""Scoring candidates on a GPU without gathering them: one Triton kernel a family.

The same functions as in :mod:`nscaching.scoring.cpu_kernels`. A program scores a block of the
candidates of one query; the table's rows go straight from memory into registers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_MAX_BLOCK_D = 256
_TILE = 8192


@triton.jit
def _dot_product(
    query,
    table,
    ids,
    scores,
    k,
    width: tl.constexpr,
    stride,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = j < k
    row = tl.load(ids + i * k + j, mask=inside, other=0).to(tl.int64) * stride
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
    stride,
    NORM: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = j < k
    row = tl.load(ids + i * k + j, mask=inside, other=0).to(tl.int64) * stride
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
    stride,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = j < k
    row = tl.load(ids + i * k + j, mask=inside, other=0).to(tl.int64) * stride
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
    block_k = min(triton.next_power_of_2(k), max(16, _TILE // block_d))
    table = arrays[-1]
    if count and k:
        grid = (count, triton.cdiv(k, block_k))
        kernel[grid](*arrays, ids, scores, k, width, table.shape[1], *constants, block_k, block_d)
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
