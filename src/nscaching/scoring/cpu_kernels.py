"""Scoring candidates on the CPU without gathering them: Numba loops over the entity table.

Each kernel is the ``match`` of a family, fused with the gather of the entity's row. Shapes: queries
(b, q), table (n, width), ids (b, k) -> scores (b, k). They are compiled on first use and kept on
disk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

_jit = njit(parallel=True, fastmath=True, cache=True, nogil=True, error_model="numpy")
_inline = njit(fastmath=True, cache=True, nogil=True, error_model="numpy")
Array = np.ndarray[Any, Any]


@_jit
def translational(
    query: Array, vector: Array, table: Array, ids: Array, scores: Array, norm: int, kind: int
) -> None:
    """``-||q - view(x)||_p`` with ``x`` normalised; ``vector`` is the relation's own, (b, dim).

    ``kind`` is how the relation sees an entity, see :mod:`nscaching.scoring.families`.
    """
    dim = query.shape[1]
    for i in prange(ids.shape[0]):
        for j in range(ids.shape[1]):
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


@_jit
def complex_distance(query: Array, table: Array, ids: Array, scores: Array) -> None:
    """``-sum_k |q_k - x_k|`` for complex rows laid out as [re, im]."""
    dim = query.shape[1] // 2
    for i in prange(ids.shape[0]):
        for j in range(ids.shape[1]):
            row = ids[i, j]
            total = np.float32(0)
            for d in range(dim):
                re = query[i, d] - table[row, d]
                im = query[i, dim + d] - table[row, dim + d]
                total += np.float32(math.sqrt(re * re + im * im))
            scores[i, j] = -total


#: Entities that stay in the nearest cache while all queries pass over them.
_BLOCK = 64


@_jit
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


@_jit
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


@_jit
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
    width = entity.shape[1]
    half = width if kind == 0 else width // 2
    for i in prange(anchors.shape[0]):
        x, r = anchors[i], relations[i]
        if kind == 0:
            for d in range(half):
                queries[i, d] = entity[x, d] * relation[r, d]
        elif kind == 1:
            turn = np.float32(1) if tail else np.float32(-1)
            for d in range(half):
                x_re, x_im = entity[x, d], entity[x, half + d]
                r_re, r_im = relation[r, d], turn * relation[r, half + d]
                queries[i, d] = x_re * r_re - x_im * r_im
                queries[i, half + d] = x_re * r_im + x_im * r_re
        elif tail:
            for d in range(half):
                queries[i, d] = entity[x, half + d] * relation[r, half + d]
                queries[i, half + d] = entity[x, d] * relation[r, d]
        else:
            for d in range(half):
                queries[i, d] = entity[x, half + d] * relation[r, d]
                queries[i, half + d] = entity[x, d] * relation[r, half + d]


@_inline
def softplus(x: Any) -> Any:
    """Return log(1 + exp(x))."""
    return np.float32(max(x, np.float32(0)) + math.log1p(math.exp(-abs(x))))


@_inline
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return np.float32(1) / (np.float32(1) + np.float32(math.exp(-x)))


@_inline
def _bilinear(entity: Array, relation: Array, h: int, r: int, t: int, kind: int, half: int) -> Any:
    total = np.float32(0)
    if kind == 0:
        for d in range(half):
            total += entity[h, d] * relation[r, d] * entity[t, d]
    elif kind == 1:
        for d in range(half):
            h_re, h_im = entity[h, d], entity[h, half + d]
            t_re, t_im = entity[t, d], entity[t, half + d]
            total += relation[r, d] * (h_re * t_re + h_im * t_im)
            total += relation[r, half + d] * (h_re * t_im - h_im * t_re)
    else:
        for d in range(half):
            total += entity[h, d] * relation[r, d] * entity[t, half + d]
            total += entity[h, half + d] * relation[r, half + d] * entity[t, d]
    return total


@_inline
def _add_gradient(
    entity: Array,
    relation: Array,
    h: int,
    r: int,
    t: int,
    slope: Any,
    entity_rows: Array,
    relation_rows: Array,
    head_row: int,
    relation_row: int,
    tail_row: int,
    kind: int,
    half: int,
) -> None:
    if kind == 0:
        for d in range(half):
            x, y, z = entity[h, d], relation[r, d], entity[t, d]
            entity_rows[head_row, d] += slope * y * z
            relation_rows[relation_row, d] += slope * x * z
            entity_rows[tail_row, d] += slope * x * y
    elif kind == 1:
        for d in range(half):
            e = half + d
            h_re, h_im = entity[h, d], entity[h, e]
            r_re, r_im = relation[r, d], relation[r, e]
            t_re, t_im = entity[t, d], entity[t, e]
            entity_rows[head_row, d] += slope * (r_re * t_re + r_im * t_im)
            entity_rows[head_row, e] += slope * (r_re * t_im - r_im * t_re)
            relation_rows[relation_row, d] += slope * (h_re * t_re + h_im * t_im)
            relation_rows[relation_row, e] += slope * (h_re * t_im - h_im * t_re)
            entity_rows[tail_row, d] += slope * (r_re * h_re - r_im * h_im)
            entity_rows[tail_row, e] += slope * (r_re * h_im + r_im * h_re)
    else:
        for d in range(half):
            e = half + d
            entity_rows[head_row, d] += slope * relation[r, d] * entity[t, e]
            entity_rows[head_row, e] += slope * relation[r, e] * entity[t, d]
            relation_rows[relation_row, d] += slope * entity[h, d] * entity[t, e]
            relation_rows[relation_row, e] += slope * entity[h, e] * entity[t, d]
            entity_rows[tail_row, d] += slope * relation[r, e] * entity[h, e]
            entity_rows[tail_row, e] += slope * relation[r, d] * entity[h, d]


@_jit
def bilinear_gradients(
    entity: Array,
    relation: Array,
    heads: Array,
    relations: Array,
    tails: Array,
    negatives: Array,
    replaces_head: Array,
    weight: Array,
    entity_rows: Array,
    relation_rows: Array,
    scores: Array,
    losses: Array,
    kind: int,
    margin: float,
) -> None:
    """Scores, losses and gradients of positives and their negatives, in one pass.

    ``kind``: 0 DistMult, 1 ComplEx, 2 SimplE. ``margin`` above 0 is margin ranking, else logistic.
    Shapes: heads, relations, tails, losses (b,); negatives, replaces_head, weight, scores (b, k);
    relation_rows (b, width); entity_rows ((2 + k) b, width): heads, tails, then negatives.
    """
    count, k = negatives.shape
    width = entity.shape[1]
    half = width if kind == 0 else width // 2
    for place in prange(count):
        i: Any = np.int64(place)  # prange counts unsigned, and unsigned plus signed is a float
        h, r, t = heads[i], relations[i], tails[i]
        for d in range(width):
            entity_rows[i, d] = 0
            entity_rows[count + i, d] = 0
            relation_rows[i, d] = 0
        positive = _bilinear(entity, relation, h, r, t, kind, half)
        slope = np.float32(0)
        loss = np.float32(0)
        if margin <= 0:
            loss = softplus(-positive)
            slope = -sigmoid(-positive)
        for j in range(k):
            n = negatives[i, j]
            row = 2 * count + i * k + j
            for d in range(width):
                entity_rows[row, d] = 0
            head, tail = (n, t) if replaces_head[i, j] else (h, n)
            negative = _bilinear(entity, relation, head, r, tail, kind, half)
            scores[i, j] = negative
            w = weight[i, j]
            if margin > 0:
                gap = np.float32(margin) - positive + negative
                pull = w if gap > 0 else np.float32(0)
                loss += pull * gap
                slope -= pull
            else:
                pull = w * sigmoid(negative)
                loss += w * softplus(negative)
            head_row, tail_row = (row, count + i) if replaces_head[i, j] else (i, row)
            if pull != 0:
                _add_gradient(
                    entity, relation, head, r, tail, pull,
                    entity_rows, relation_rows, head_row, i, tail_row, kind, half,
                )  # fmt: skip
        losses[i] = loss
        _add_gradient(
            entity, relation, h, r, t, slope,
            entity_rows, relation_rows, i, i, count + i, kind, half,
        )  # fmt: skip
