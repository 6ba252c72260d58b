"""Scoring candidates on the CPU without gathering them: Numba loops over the entity table.

Each kernel is the ``match`` of a family, fused with the gather of the entity's row; rows that come
later are asked for ahead. Shapes: queries (b, q), table (n, width), ids (b, k) -> scores (b, k).
They are compiled on first use and kept on disk.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from nscaching.kernels.compiled import Array, inline, parallel
from nscaching.kernels.llvm import fetch_row
from nscaching.models.dot_kernels import AHEAD, fetch_rows


@parallel
def translational(
    query: Array, vector: Array, table: Array, ids: Array, scores: Array, norm: int, kind: int
) -> None:
    """``-||q - view(x)||_p`` with ``x`` normalised; ``vector`` is the relation's own, (b, dim).

    ``kind`` is how the relation sees an entity, see :mod:`nscaching.models.families`.
    """
    dim = query.shape[1]
    for i in prange(ids.shape[0]):
        fetch_rows(table, ids[i])
        for j in range(ids.shape[1]):
            if j + AHEAD < ids.shape[1]:
                fetch_row(table, ids[i, j + AHEAD])
            row = ids[i, j]
            square = np.float32(0)
            for d in range(dim):
                square += table[row, d] * table[row, d]
            scale = np.float32(1) / max(np.float32(math.sqrt(square)), np.float32(1e-12))
            along = np.float32(0)
            if kind == 1:
                for d in range(dim):
                    along -= vector[i, d] * table[row, d]
            elif kind == 2:
                for d in range(dim):
                    along += table[row, dim + d] * table[row, d]
            along *= scale
            total = np.float32(0)
            if kind == 0:
                if norm == 1:
                    for d in range(dim):
                        total += abs(query[i, d] - scale * table[row, d])
                else:
                    for d in range(dim):
                        gap = query[i, d] - scale * table[row, d]
                        total += gap * gap
            elif norm == 1:
                for d in range(dim):
                    total += abs(query[i, d] - scale * table[row, d] - along * vector[i, d])
            else:
                for d in range(dim):
                    gap = query[i, d] - scale * table[row, d] - along * vector[i, d]
                    total += gap * gap
            scores[i, j] = -total if norm == 1 else -np.float32(math.sqrt(total))


@parallel
def complex_distance(query: Array, table: Array, ids: Array, scores: Array) -> None:
    """``-sum_k |q_k - x_k|`` for complex rows laid out as [re, im]."""
    dim = query.shape[1] // 2
    for i in prange(ids.shape[0]):
        fetch_rows(table, ids[i])
        for j in range(ids.shape[1]):
            if j + AHEAD < ids.shape[1]:
                fetch_row(table, ids[i, j + AHEAD])
            row = ids[i, j]
            total = np.float32(0)
            for d in range(dim):
                re = query[i, d] - table[row, d]
                im = query[i, dim + d] - table[row, dim + d]
                total += np.float32(math.sqrt(re * re + im * im))
            scores[i, j] = -total


#: Entities that stay in the nearest cache while all queries pass over them.
_BLOCK = 64


@parallel
def all_distances(query: Array, views: Array, scores: Array, norm: int) -> None:
    """``-||q - x||_p`` for all pairs. Shapes: (b, q), (n, q) -> (b, n)."""
    width = query.shape[1]
    for block in prange((views.shape[0] + _BLOCK - 1) // _BLOCK):
        stop = min(views.shape[0], (block + 1) * _BLOCK)
        for i in range(query.shape[0]):
            for j in range(block * _BLOCK, stop):
                total = np.float32(0)
                if norm == 1:
                    for d in range(width):
                        total += abs(query[i, d] - views[j, d])
                    scores[i, j] = -total
                else:
                    for d in range(width):
                        gap = query[i, d] - views[j, d]
                        total += gap * gap
                    scores[i, j] = -np.float32(math.sqrt(total))


@parallel
def all_complex_distances(query: Array, views: Array, scores: Array) -> None:
    """``-sum_k |q_k - x_k|`` for all pairs of complex rows. Shapes: (b, q), (n, q) -> (b, n)."""
    dim = query.shape[1] // 2
    for block in prange((views.shape[0] + _BLOCK - 1) // _BLOCK):
        stop = min(views.shape[0], (block + 1) * _BLOCK)
        for i in range(query.shape[0]):
            for j in range(block * _BLOCK, stop):
                total = np.float32(0)
                for d in range(dim):
                    re = query[i, d] - views[j, d]
                    im = query[i, dim + d] - views[j, dim + d]
                    total += np.float32(math.sqrt(re * re + im * im))
                scores[i, j] = -total


@inline
def write_query(
    entity: Array, relation: Array, x: int, r: int, query: Array, kind: int, tail: bool
) -> None:
    """Write the query of a bilinear scoring function for one anchor. Shape: (width,)."""
    width = entity.shape[1]
    half = width if kind == 0 else width // 2
    if kind == 0:
        for d in range(half):
            query[d] = entity[x, d] * relation[r, d]
    elif kind == 1:
        turn = np.float32(1) if tail else np.float32(-1)
        for d in range(half):
            x_re, x_im = entity[x, d], entity[x, half + d]
            r_re, r_im = relation[r, d], turn * relation[r, half + d]
            query[d] = x_re * r_re - x_im * r_im
            query[half + d] = x_re * r_im + x_im * r_re
    elif tail:
        for d in range(half):
            query[d] = entity[x, half + d] * relation[r, half + d]
            query[half + d] = entity[x, d] * relation[r, d]
    else:
        for d in range(half):
            query[d] = entity[x, half + d] * relation[r, d]
            query[half + d] = entity[x, d] * relation[r, half + d]


@parallel
def bilinear_query(
    entity: Array,
    relation: Array,
    anchors: Array,
    relations: Array,
    queries: Array,
    kind: int,
    tail: int,
) -> None:
    """Queries of a bilinear scoring function straight from the tables. Shape: (b, width)."""
    for i in prange(anchors.shape[0]):
        write_query(entity, relation, anchors[i], relations[i], queries[i], kind, tail != 0)
