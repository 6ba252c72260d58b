"""Loss and gradients of TransE, TransH and TransD on the CPU: one pass of Numba loops.

A relation sees an entity as ``scale x + lift w``: normalised, then (not in TransE) moved along the
relation's second vector ``w``. So a view is two scalars and needs no room of its own. Gradients
are first added up for the views, in the rows where they end, then taken through each view once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from nscaching.kernels.compiled import Array, inline, parallel
from nscaching.models.gradients.pair_cpu import fetch_ahead, negative_loss, positive_loss

#: What a norm is at least when something is divided by it, as in ``torch.nn.functional.normalize``.
_TINY = np.float32(1e-12)


@inline
def _dot(a: Array, row: int, b: Array, other: int, start: int, dim: int) -> Any:
    """Dot product of the first ``dim`` numbers of a row, and of those from ``start`` of another."""
    total = np.float32(0)
    for d in range(dim):
        total += a[row, d] * b[other, start + d]
    return total


@inline
def _normaliser(square: Any) -> Any:
    """Scale that makes a vector a unit vector, and its square; 0 for that where it is a constant.

    The second is what the derivative of the normalisation needs.
    """
    norm = np.float32(math.sqrt(square))
    scale = np.float32(1) / max(norm, _TINY)
    return scale, (scale * scale if norm >= _TINY else np.float32(0))


@inline
def _view(entity: Array, x: int, relation: Array, r: int, steep: Any, kind: int, dim: int) -> Any:
    """Scale and lift of an entity, the bend of its scale, and its product with the other vector.

    That vector is the relation's normal (``kind`` 1), whose scale is ``steep``, or the entity's own
    projection vector (``kind`` 2).
    """
    scale, bend = _normaliser(_dot(entity, x, entity, x, 0, dim))
    lift, product = np.float32(0), np.float32(0)
    if kind == 1:
        product = _dot(entity, x, relation, r, dim, dim)
        lift = -product * scale * steep * steep
    elif kind == 2:
        product = _dot(entity, x, entity, x, dim, dim)
        lift = product * scale
    return scale, lift, bend, product


@inline
def _scales(head: int, tail: int, head_scale: Any, tail_scale: Any) -> Any:
    """Scales of a difference: an entity less itself is nothing, not what rounding leaves of it."""
    nothing = np.float32(0)
    return (nothing, nothing) if head == tail else (head_scale, tail_scale)


@inline
def _gap(
    entity: Array, relation: Array, h: int, r: int, t: int,
    head_scale: Any, tail_scale: Any, lift: Any, kind: int, dim: int, d: int,
) -> Any:  # fmt: skip
    gap = head_scale * entity[h, d] + relation[r, d] - tail_scale * entity[t, d]
    return gap if kind == 0 else gap + lift * relation[r, dim + d]


@inline
def _translated(
    entity: Array, relation: Array, h: int, r: int, t: int,
    head_scale: Any, tail_scale: Any, lift: Any, kind: int, norm: int, dim: int,
) -> Any:  # fmt: skip
    """Distance of the moved head from the tail; ``lift`` is the head's less the tail's."""
    total = np.float32(0)
    for d in range(dim):
        gap = _gap(entity, relation, h, r, t, head_scale, tail_scale, lift, kind, dim, d)
        total += abs(gap) if norm == 1 else gap * gap
    return total if norm == 1 else np.float32(math.sqrt(total))


@inline
def _add_view_gradients(
    entity: Array, relation: Array, h: int, r: int, t: int,
    head_scale: Any, tail_scale: Any, lift: Any, kind: int, norm: int, dim: int,
    slope: Any, distance: Any,
    entity_rows: Array, relation_rows: Array, head_row: int, relation_row: int, tail_row: int,
) -> None:  # fmt: skip
    """Add the gradients of both views and of the translation; ``slope`` is that of the score."""
    factor = -slope if norm == 1 or distance == 0 else -slope / distance
    for d in range(dim):
        gap = _gap(entity, relation, h, r, t, head_scale, tail_scale, lift, kind, dim, d)
        if norm == 1:
            sign = np.float32(1) if gap > 0 else np.float32(-1)
            gap = sign if gap != 0 else np.float32(0)
        entity_rows[head_row, d] += factor * gap
        entity_rows[tail_row, d] -= factor * gap
        relation_rows[relation_row, d] += factor * gap


@inline
def _through_view(
    entity: Array, relation: Array, x: int, r: int,
    scale: Any, bend: Any, product: Any, steep: Any, kind: int, dim: int,
    entity_rows: Array, relation_rows: Array, row: int, relation_row: int,
) -> None:  # fmt: skip
    """Turn the gradient of a view, in ``row``, into that of the entity and the relation."""
    along = _dot(entity_rows, row, entity, x, 0, dim)
    if kind == 0:
        inward = bend * along
        for d in range(dim):
            entity_rows[row, d] = scale * (entity_rows[row, d] - inward * entity[x, d])
        return
    across = _dot(entity_rows, row, relation, r, dim, dim)
    if kind == 1:
        down = steep * steep * across
        inward = bend * (along - down * product)
        of_gradient, of_entity = -steep * product * scale, -steep * across * scale
        for d in range(dim):
            g, v = entity_rows[row, d], entity[x, d]
            relation_rows[relation_row, dim + d] += of_gradient * g + of_entity * v
            entity_rows[row, d] = scale * (g - down * relation[r, dim + d] - inward * v)
    else:
        inward = bend * (along + across * product)
        for d in range(dim):
            g, v = entity_rows[row, d], entity[x, d]
            relation_rows[relation_row, dim + d] += scale * product * g
            entity_rows[row, d] = scale * (g + across * entity[x, dim + d] - inward * v)
            entity_rows[row, dim + d] = across * scale * v


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
    norm: int,
    kind: int,
    margin: float,
) -> None:
    """Scores, losses and gradients of positives and their negatives, in one pass.

    ``kind`` is how the relation sees an entity, see :mod:`nscaching.models.families`; the other
    arguments are those of :func:`nscaching.models.gradients.bilinear_cpu.gradients`.
    """
    count, k = negatives.shape
    dim = entity.shape[1] if kind != 2 else entity.shape[1] // 2
    for place in prange(count):
        i: Any = np.int64(place)  # prange counts unsigned, and unsigned plus signed is a float
        fetch_ahead(entity, heads, tails, negatives, i)
        h, r, t = heads[i], relations[i], tails[i]
        entity_rows[i] = 0
        entity_rows[count + i] = 0
        relation_rows[i] = 0
        steep, crook = np.float32(0), np.float32(0)
        if kind == 1:
            for d in range(dim):
                crook += relation[r, dim + d] * relation[r, dim + d]
            steep, crook = _normaliser(crook)
        h_scale, h_lift, h_bend, h_product = _view(entity, h, relation, r, steep, kind, dim)
        t_scale, t_lift, t_bend, t_product = _view(entity, t, relation, r, steep, kind, dim)
        head_scale, tail_scale = _scales(h, t, h_scale, t_scale)
        distance = _translated(
            entity, relation, h, r, t, head_scale, tail_scale, h_lift - t_lift, kind, norm, dim
        )
        loss, slope = positive_loss(-distance, margin)
        for j in range(k):
            n = negatives[i, j]
            row = 2 * count + i * k + j
            entity_rows[row] = 0
            scale, lift, bend, product = _view(entity, n, relation, r, steep, kind, dim)
            swap = replaces_head[i, j]
            head, tail = (n, t) if swap else (h, n)
            head_scale, tail_scale = (scale, t_scale) if swap else (h_scale, scale)
            head_scale, tail_scale = _scales(head, tail, head_scale, tail_scale)
            lift = lift - t_lift if swap else h_lift - lift
            apart = _translated(
                entity, relation, head, r, tail, head_scale, tail_scale, lift, kind, norm, dim
            )
            scores[i, j] = -apart
            more, release, pull = negative_loss(-distance, -apart, weight[i, j], margin)
            loss += more
            slope += release
            if pull != 0:
                head_row, tail_row = (row, count + i) if swap else (i, row)
                _add_view_gradients(
                    entity, relation, head, r, tail, head_scale, tail_scale, lift, kind, norm, dim,
                    pull, apart, entity_rows, relation_rows, head_row, i, tail_row,
                )  # fmt: skip
                _through_view(
                    entity, relation, n, r, scale, bend, product, steep, kind, dim,
                    entity_rows, relation_rows, row, i,
                )  # fmt: skip
        losses[i] = loss
        if slope == 0:
            continue  # no negative pulled
        head_scale, tail_scale = _scales(h, t, h_scale, t_scale)
        _add_view_gradients(
            entity, relation, h, r, t, head_scale, tail_scale, h_lift - t_lift, kind, norm, dim,
            slope, distance, entity_rows, relation_rows, i, i, count + i,
        )  # fmt: skip
        _through_view(
            entity, relation, h, r, h_scale, h_bend, h_product, steep, kind, dim,
            entity_rows, relation_rows, i, i,
        )  # fmt: skip
        _through_view(
            entity, relation, t, r, t_scale, t_bend, t_product, steep, kind, dim,
            entity_rows, relation_rows, count + i, i,
        )  # fmt: skip
        if kind == 1:
            inward = np.float32(0)
            for d in range(dim):
                inward += relation_rows[i, dim + d] * relation[r, dim + d]
            inward *= crook
            for d in range(dim):
                g = relation_rows[i, dim + d]
                relation_rows[i, dim + d] = steep * (g - inward * relation[r, dim + d])
