"""Gradients of weighted distances on the CPU: one loop over queries, one over entities.

The loop over entities goes through their occurrences in the order of the queries, so that the
result does not depend on the number of threads.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from nscaching.kernels.compiled import Array, inline, parallel


@inline
def _scale(table: Array, row: int) -> np.float32:
    """Return the factor that makes an entity's vector one of length 1."""
    square = np.float32(0)
    for d in range(table.shape[1]):
        square += table[row, d] * table[row, d]
    return np.float32(1) / max(np.float32(math.sqrt(square)), np.float32(1e-12))


@inline
def _by_entity(ids: Array, weights: Array, starts: Array, places: Array) -> None:
    """List the places (query, candidate) of each entity that have a weight: a counting sort."""
    starts[:] = 0
    for i in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            if weights[i, j] != 0:
                starts[ids[i, j] + 1] += 1
    for row in range(starts.shape[0] - 1):
        starts[row + 1] += starts[row]
    filled = starts[:-1].copy()
    for i in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            if weights[i, j] != 0:
                row = ids[i, j]
                places[filled[row]] = i * ids.shape[1] + j
                filled[row] += 1


@parallel
def _to_queries(query: Array, table: Array, ids: Array, weights: Array, out: Array) -> None:
    width = query.shape[1]
    for i in prange(ids.shape[0]):
        for d in range(width):
            out[i, d] = 0
        for j in range(ids.shape[1]):
            row, weight = ids[i, j], weights[i, j]
            scale = _scale(table, row)
            for d in range(width):
                gap = query[i, d] - scale * table[row, d]
                out[i, d] -= weight if gap > 0 else (-weight if gap < 0 else np.float32(0))


@parallel
def _to_entities(
    query: Array, table: Array, starts: Array, places: Array, weights: Array, out: Array
) -> None:
    width, k = query.shape[1], weights.shape[1]
    for row in prange(table.shape[0]):
        for d in range(width):
            out[row, d] = 0
        scale = _scale(table, row)
        for place in places[starts[row] : starts[row + 1]]:
            i = place // k
            weight = weights[i, place - i * k]
            for d in range(width):
                gap = query[i, d] - scale * table[row, d]
                out[row, d] += weight if gap > 0 else (-weight if gap < 0 else np.float32(0))
        if starts[row] < starts[row + 1]:
            along = np.float32(0)
            for d in range(width):
                along += out[row, d] * table[row, d]
            along *= scale * scale
            for d in range(width):
                out[row, d] = scale * (out[row, d] - along * table[row, d])


def gradients(
    query: Array, table: Array, ids: Array, weights: Array, to_query: Array, to_table: Array
) -> None:
    """Write what :func:`nscaching.models.gradients.distances.distance_gradients` returns."""
    starts = np.empty(len(table) + 1, dtype=np.int64)
    places = np.empty(ids.size, dtype=np.int64)
    _by_entity(ids, weights, starts, places)
    _to_queries(query, table, ids, weights, to_query)
    _to_entities(query, table, starts, places, weights, to_table)
