"""Distances of all queries to all entities on a GPU, and their gradients, without differences kept.

Ranking needs the distances, softmax over many entities both. A program has a tile of pairs, or for
gradients a tile of queries and dimensions that passes over all entities. For distances, both are
transposed first, so that neighbouring threads read neighbouring numbers of one dimension.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Queries and entities of a tile, and the warps that share it.
_BLOCK_Q, _BLOCK_E, _WARPS = 64, 64, 4


@triton.jit
def _all_distances(
    query,
    views,
    scores,
    queries,
    entities,
    dim,
    NORM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    i = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    j = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)
    wide, long = tl.cast(queries, tl.int64), tl.cast(entities, tl.int64)  # times d: past 31 bits
    total = tl.zeros([BLOCK_Q, BLOCK_E], dtype=tl.float32)
    for d in range(dim):
        q = tl.load(query + d * wide + i, mask=i < queries, other=0.0)
        x = tl.load(views + d * long + j, mask=j < entities, other=0.0)
        gap = q[:, None] - x[None, :]
        if NORM == 1:
            total += tl.abs(gap)
        else:
            total += gap * gap
    if NORM == 2:
        total = tl.sqrt(total)
    place = i[:, None] * long + j[None, :]
    tl.store(scores + place, -total, mask=(i < queries)[:, None] & (j < entities)[None, :])


@triton.jit
def _all_moduli(
    query,
    views,
    scores,
    queries,
    entities,
    dim,
    BLOCK_Q: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    i = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    j = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)
    wide, long = tl.cast(queries, tl.int64), tl.cast(entities, tl.int64)  # times d: past 31 bits
    total = tl.zeros([BLOCK_Q, BLOCK_E], dtype=tl.float32)
    for d in range(dim):
        q_re = tl.load(query + d * wide + i, mask=i < queries, other=0.0)
        q_im = tl.load(query + (dim + d) * wide + i, mask=i < queries, other=0.0)
        x_re = tl.load(views + d * long + j, mask=j < entities, other=0.0)
        x_im = tl.load(views + (dim + d) * long + j, mask=j < entities, other=0.0)
        re, im = q_re[:, None] - x_re[None, :], q_im[:, None] - x_im[None, :]
        total += tl.sqrt(re * re + im * im)
    place = i[:, None] * long + j[None, :]
    tl.store(scores + place, -total, mask=(i < queries)[:, None] & (j < entities)[None, :])


def all_distances(query: Tensor, views: Tensor, norm: int) -> Tensor:
    """``-||q - x||_p`` of all pairs. Shapes: (b, dim), (n, dim) -> (b, n)."""
    return _launch(_all_distances, query, views, query.shape[1], norm)


def all_moduli(query: Tensor, views: Tensor) -> Tensor:
    """``-sum_k |q_k - x_k|`` of all pairs. Shapes: (b, 2 dim), (n, 2 dim) -> (b, n)."""
    return _launch(_all_moduli, query, views, query.shape[1] // 2)


def _launch(kernel: Any, query: Tensor, views: Tensor, dim: int, *constants: int) -> Tensor:
    """Run a kernel over (tile of entities, tile of queries)."""
    count, entities = len(query), len(views)
    scores = torch.empty(count, entities, device=query.device)
    if count and entities:
        kernel[(triton.cdiv(entities, _BLOCK_E), triton.cdiv(count, _BLOCK_Q))](
            query.T.contiguous(),
            views.T.contiguous(),
            scores,
            count,
            entities,
            dim,
            *constants,
            _BLOCK_Q,
            _BLOCK_E,
            num_warps=_WARPS,
        )
    return scores


@triton.jit
def _sign_sums(
    query, views, d_scores, sums, queries, entities, dim, stride_q, stride_e,
    BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    wide = tl.cast(dim, tl.int64)
    inside = (i < queries)[:, None] & (d < dim)[None, :]
    q = tl.load(query + i[:, None] * wide + d[None, :], mask=inside, other=0.0)
    total = tl.zeros([BLOCK_Q, BLOCK_D], dtype=tl.float32)
    for j in range(entities):
        far = tl.cast(j, tl.int64)
        x = tl.load(views + far * wide + d, mask=d < dim, other=0.0)
        given = d_scores + i * tl.cast(stride_q, tl.int64) + far * stride_e
        g = tl.load(given, mask=i < queries, other=0.0)
        gap = q - x[None, :]
        slope = g[:, None]
        total -= tl.where(gap > 0, slope, tl.where(gap < 0, -slope, 0.0))
    tl.store(sums + i[:, None] * wide + d[None, :], total, mask=inside)


@triton.jit
def _direction_sums(
    query, views, d_scores, sums, queries, entities, dim, stride_q, stride_e,
    BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    wide = 2 * tl.cast(dim, tl.int64)
    inside = (i < queries)[:, None] & (d < dim)[None, :]
    place = i[:, None] * wide + d[None, :]
    q_re = tl.load(query + place, mask=inside, other=0.0)
    q_im = tl.load(query + place + dim, mask=inside, other=0.0)
    total_re = tl.zeros([BLOCK_Q, BLOCK_D], dtype=tl.float32)
    total_im = tl.zeros([BLOCK_Q, BLOCK_D], dtype=tl.float32)
    for j in range(entities):
        far = tl.cast(j, tl.int64)
        x_re = tl.load(views + far * wide + d, mask=d < dim, other=0.0)
        x_im = tl.load(views + far * wide + dim + d, mask=d < dim, other=0.0)
        given = d_scores + i * tl.cast(stride_q, tl.int64) + far * stride_e
        g = tl.load(given, mask=i < queries, other=0.0)
        re, im = q_re - x_re[None, :], q_im - x_im[None, :]
        square = re * re + im * im
        factor = g[:, None] * tl.rsqrt(tl.where(square > 0, square, 1.0))
        total_re -= factor * re
        total_im -= factor * im
    tl.store(sums + place, total_re, mask=inside)
    tl.store(sums + place + dim, total_im, mask=inside)


def sign_sums(query: Tensor, views: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries from L1 distances. Shapes: (b, q), (n, q), (b, n)."""
    return _launch_sums(_sign_sums, query, views, d_scores, query.shape[1])


def direction_sums(query: Tensor, views: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries from complex moduli. Shapes: (b, q), (n, q), (b, n)."""
    return _launch_sums(_direction_sums, query, views, d_scores, query.shape[1] // 2)


#: Queries and dimensions of a tile of gradients, and the warps that share it.
_SUM_Q, _SUM_D, _SUM_WARPS = 32, 64, 4


def _launch_sums(kernel: Any, query: Tensor, views: Tensor, d_scores: Tensor, dim: int) -> Tensor:
    """Run a kernel over (tile of queries, tile of dimensions)."""
    sums = torch.zeros_like(query, memory_format=torch.contiguous_format)
    if query.numel() and len(views):
        kernel[(triton.cdiv(len(query), _SUM_Q), triton.cdiv(dim, _SUM_D))](
            query.contiguous(),
            views.contiguous(),
            d_scores,
            sums,
            len(query),
            len(views),
            dim,
            *d_scores.stride(),
            _SUM_Q,
            _SUM_D,
            num_warps=_SUM_WARPS,
        )
    return sums
