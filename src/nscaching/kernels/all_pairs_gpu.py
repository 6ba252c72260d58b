"""Distances of all queries to all entities on a GPU: a tile of pairs a program, nothing else kept.

Ranking needs them. Queries and entities are turned over first, so that neighbouring threads read
neighbouring numbers of one dimension.
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
