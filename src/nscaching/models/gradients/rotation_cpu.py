"""Loss and gradients of RotatE on the CPU: one pass of Numba loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from nscaching.kernels.compiled import Array, inline, parallel
from nscaching.models.gradients.pair_cpu import fetch_ahead, negative_loss, positive_loss


@inline
def _rotated(entity: Array, turn: Array, h: int, r: int, t: int, dim: int) -> Any:
    """Distance of the rotated head from the tail."""
    total = np.float32(0)
    for d in range(dim):
        h_re, h_im = entity[h, d], entity[h, dim + d]
        cos, sin = turn[r, d], turn[r, dim + d]
        re = h_re * cos - h_im * sin - entity[t, d]
        im = h_re * sin + h_im * cos - entity[t, dim + d]
        total += np.float32(math.sqrt(re * re + im * im))
    return total


@inline
def _add_gradients(
    entity: Array, turn: Array, h: int, r: int, t: int, dim: int, slope: Any,
    entity_rows: Array, relation_rows: Array, head_row: int, relation_row: int, tail_row: int,
) -> None:  # fmt: skip
    for d in range(dim):
        h_re, h_im = entity[h, d], entity[h, dim + d]
        cos, sin = turn[r, d], turn[r, dim + d]
        x, y = h_re * cos - h_im * sin, h_re * sin + h_im * cos
        re, im = x - entity[t, d], y - entity[t, dim + d]
        modulus = np.float32(math.sqrt(re * re + im * im))
        factor = -slope / (modulus if modulus > 0 else np.float32(1))
        re *= factor
        im *= factor
        entity_rows[head_row, d] += re * cos + im * sin
        entity_rows[head_row, dim + d] += im * cos - re * sin
        entity_rows[tail_row, d] -= re
        entity_rows[tail_row, dim + d] -= im
        relation_rows[relation_row, d] += im * x - re * y


@parallel
def _gradients(
    entity: Array,
    turn: Array,
    turns: Array,
    heads: Array,
    tails: Array,
    negatives: Array,
    replaces_head: Array,
    weight: Array,
    entity_rows: Array,
    relation_rows: Array,
    scores: Array,
    losses: Array,
    margin: float,
) -> None:
    count, k = negatives.shape
    dim = relation_rows.shape[1]
    for place in prange(count):
        i: Any = np.int64(place)  # prange counts unsigned, and unsigned plus signed is a float
        fetch_ahead(entity, heads, tails, negatives, i)
        h, r, t = heads[i], turns[i], tails[i]
        entity_rows[i] = 0
        entity_rows[count + i] = 0
        relation_rows[i] = 0
        positive = -_rotated(entity, turn, h, r, t, dim)
        loss, slope = positive_loss(positive, margin)
        for j in range(k):
            n = negatives[i, j]
            row = 2 * count + i * k + j
            entity_rows[row] = 0
            head, tail = (n, t) if replaces_head[i, j] else (h, n)
            negative = -_rotated(entity, turn, head, r, tail, dim)
            scores[i, j] = negative
            more, release, pull = negative_loss(positive, negative, weight[i, j], margin)
            loss += more
            slope += release
            if pull != 0:
                head_row, tail_row = (row, count + i) if replaces_head[i, j] else (i, row)
                _add_gradients(
                    entity, turn, head, r, tail, dim, pull,
                    entity_rows, relation_rows, head_row, i, tail_row,
                )  # fmt: skip
        losses[i] = loss
        if slope != 0:
            _add_gradients(
                entity, turn, h, r, t, dim, slope, entity_rows, relation_rows, i, i, count + i
            )


def gradients(entity: Array, relation: Array, heads: Array, relations: Array, *others: Any) -> None:
    """Scores, losses and gradients of positives and their negatives, in one pass.

    ``relation`` holds phases; the rest is as in
    :func:`nscaching.models.gradients.bilinear_cpu.gradients`. Cosines are taken of the relations
    or of the batch, whichever are fewer, by NumPy: it takes several at a time, Numba one.
    """
    turns = relations
    if len(relation) > len(relations):
        relation, turns = relation[relations], np.arange(len(relations))
    turn = np.concatenate([np.cos(relation), np.sin(relation)], axis=1)
    kernel: Any = _gradients
    kernel(entity, turn, turns, heads, *others)
