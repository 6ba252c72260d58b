"""Loss and gradients of DistMult, ComplEx and SimplE on the CPU: one pass of Numba loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from nscaching.kernels.compiled import Array, inline, parallel
from nscaching.models.gradients.pair_cpu import fetch_ahead, negative_loss, positive_loss


@inline
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


@inline
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


@parallel
def gradients(
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
        fetch_ahead(entity, heads, tails, negatives, i)
        h, r, t = heads[i], relations[i], tails[i]
        for d in range(width):
            entity_rows[i, d] = 0
            entity_rows[count + i, d] = 0
            relation_rows[i, d] = 0
        positive = _bilinear(entity, relation, h, r, t, kind, half)
        loss, slope = positive_loss(positive, margin)
        for j in range(k):
            n = negatives[i, j]
            row = 2 * count + i * k + j
            for d in range(width):
                entity_rows[row, d] = 0
            head, tail = (n, t) if replaces_head[i, j] else (h, n)
            negative = _bilinear(entity, relation, head, r, tail, kind, half)
            scores[i, j] = negative
            more, release, pull = negative_loss(positive, negative, weight[i, j], margin)
            loss += more
            slope += release
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
