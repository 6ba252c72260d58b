"""Dot products on the CPU: forward and backward fused with the gather, as Numba loops.

The functions at the end are the CPU forms that the registry names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from nscaching.kernels.int8_cpu import AHEAD, dot_rows
from nscaching.kernels.match_cpu import QUERIES_AHEAD, fetch_later, scores_of
from nscaching.kernels.numba_tools import (
    Array,
    arrays,
    fetch_row,
    inline,
    parallel,
    unless_padding,
)
from nscaching.kernels.row_sums_cpu import chained

#: Places of queries that are all there are.
_ALL = torch.empty(0, dtype=torch.int64)


@inline
def _own(places: Array, i: int) -> Any:
    """Return where the vector of a query is."""
    return places[i] if places.shape[0] > 0 else i


@parallel
def _dot_forward(query: Array, places: Array, table: Array, ids: Array, scores: Array) -> None:
    for place in prange(ids.shape[0]):
        i: Any = np.int64(place)  # prange counts unsigned, and unsigned plus signed is a float
        fetch_later(table, ids, i)
        fetch_row(query, _own(places, min(i + QUERIES_AHEAD, ids.shape[0] - 1)))
        dot_rows(query[_own(places, i)], table, ids[i], scores[i])
        for j in range(ids.shape[1]):
            scores[i, j] = unless_padding(scores[i, j], ids[i, j])


@parallel
def _dot_backward(
    query: Array, places: Array, table: Array, ids: Array, d_scores: Array, d_query: Array,
    rows: Array,
) -> None:  # fmt: skip
    k, width = ids.shape[1], query.shape[1]
    for place in prange(ids.shape[0]):
        i: Any = np.int64(place)
        own = query[_own(places, i)]
        fetch_later(table, ids, i)
        d_query[i] = 0
        for j in range(k):
            entity = max(ids[i, j], 0)
            slope = d_scores[i, j] if ids[i, j] >= 0 else np.float32(0)
            row = i * k + j
            for d in range(width):
                d_query[i, d] += slope * table[entity, d]
                rows[row, d] = slope * own[d]


@parallel
def _query_sums(table: Array, ids: Array, d_scores: Array, d_query: Array) -> None:
    k, width = ids.shape[1], table.shape[1]
    for place in prange(ids.shape[0]):
        i: Any = np.int64(place)
        fetch_later(table, ids, i)
        d_query[i] = 0
        for j in range(k):
            if j + AHEAD < k:
                fetch_row(table, max(ids[i, j + AHEAD], 0))
            entity, slope = ids[i, j], d_scores[i, j]
            if entity >= 0:
                for d in range(width):
                    d_query[i, d] += slope * table[entity, d]


@parallel
def _entity_sums(
    query: Array, d_scores: Array, k: int, touched: Array, slot: Array, following: Array,
    rows: Array,
) -> None:  # fmt: skip
    width = query.shape[1]
    for u in prange(touched.shape[0]):
        rows[u] = 0
        place = slot[touched[u]]
        while place >= 0:
            question, slope = place // k, d_scores[place]
            for d in range(width):
                rows[u, d] += slope * query[question, d]
            place = following[place]


# The forms that the registry names ---------------------------------------------------------------


def dot_forward(query: Any, table: Tensor, ids: Tensor) -> Tensor:
    """Score candidates by the dot product. Shapes: (b, q), (n, q), (b, k) -> (b, k)."""
    places = _ALL if query.places is None else query.places
    return scores_of(_dot_forward, ids, query.vectors, places, table)


def dot_backward(
    query: Any, table: Tensor, ids: Tensor, d_scores: Tensor
) -> tuple[Tensor, None, Tensor]:
    """Return the gradients of queries (b, q) and of the candidates' rows (b k, q)."""
    d_query = torch.empty(len(ids), table.shape[1])
    rows = torch.empty(ids.numel(), table.shape[1])
    places = _ALL if query.places is None else query.places
    _dot_backward(*arrays(query.vectors, places, table, ids, d_scores, d_query, rows))
    return d_query, None, rows


def dot_query_sums(table: Tensor, ids: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries. Shapes: (n, q), (b, k), (b, k) -> (b, q)."""
    d_query = torch.empty(len(ids), table.shape[1])
    _query_sums(*arrays(table, ids, d_scores, d_query))
    return d_query


def dot_backward_summed(
    vectors: Tensor, table: Tensor, ids: Tensor, d_scores: Tensor, into: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the gradient of queries, the distinct ids, and the gradients of their rows."""
    d_query = dot_query_sums(table, ids, d_scores)
    slopes = d_scores.contiguous().numpy().reshape(-1)
    with chained(ids.reshape(-1), len(table)) as (slot, following, touched):
        touched.sort()  # those with long chains are listed together
        rows = torch.empty(len(touched), table.shape[1])
        _entity_sums(vectors.numpy(), slopes, ids.shape[1], touched, slot, following, rows.numpy())
    distinct = torch.from_numpy(touched)
    if into is not None:
        into.index_add_(0, distinct, rows)
        return d_query, None, into
    return d_query, distinct, rows
