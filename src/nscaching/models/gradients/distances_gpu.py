"""Gradients of weighted distances on a GPU: a program a query, adding up by entity in memory."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nscaching.models.gradients.distances import through_normalisation

#: Candidates that a program takes at once.
_BLOCK_K = 8


@triton.jit
def _pulls(
    query,
    table,
    ids,
    weights,
    to_query,
    to_unit,
    k,
    width: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    q = tl.load(query + i * width + d, mask=d < width, other=0.0)
    back = tl.zeros([BLOCK_D], dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        j = start + tl.arange(0, BLOCK_K)
        weight = tl.load(weights + i * k + j, mask=j < k, other=0.0)
        row = tl.load(ids + i * k + j, mask=j < k, other=0).to(tl.int64) * width
        there = (weight != 0.0)[:, None] & (d < width)[None, :]
        x = tl.load(table + row[:, None] + d[None, :], mask=there, other=0.0)
        scale = 1.0 / tl.maximum(tl.sqrt(tl.sum(x * x, axis=1)), 1e-12)
        gap = q[None, :] - scale[:, None] * x
        sign = tl.where(gap > 0, 1.0, tl.where(gap < 0, -1.0, 0.0))
        pull = weight[:, None] * sign
        back -= tl.sum(pull, axis=0)
        tl.atomic_add(to_unit + row[:, None] + d[None, :], pull, mask=there, sem="relaxed")
    tl.store(to_query + i * width + d, back, mask=d < width)


def gradients(
    query: Tensor,
    table: Tensor,
    ids: Tensor,
    weights: Tensor,
    to_query: Tensor,
    to_table: Tensor,
) -> None:
    """Write what :func:`nscaching.models.gradients.distances.distance_gradients` returns."""
    width, block = query.shape[1], triton.next_power_of_2(query.shape[1])
    to_table.zero_()
    tensors = (query, table, ids, weights, to_query, to_table)
    _pulls[(len(ids),)](*tensors, ids.shape[1], width, _BLOCK_K, block)
    to_table.copy_(through_normalisation(to_table, table))
