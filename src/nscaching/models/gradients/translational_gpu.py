"""Loss and gradients of TransE, TransH and TransD on a GPU: a program a triple.

``KIND`` is how a relation sees an entity, see :mod:`nscaching.models.families`; ``w`` is the
relation's vector in that view, and ``own`` the entity's (TransD).
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from nscaching.models.families import PROJECTION
from nscaching.models.gradients.pair_gpu import negative_loss, positive_loss, warps


@triton.jit
def _normalise(x):
    """Return the unit vector, its scale, and 1, or 0 where the scale is the largest there is."""
    norm = tl.sqrt(tl.sum(x * x, axis=0))
    scale = 1.0 / tl.maximum(norm, 1e-12)
    return x * scale, scale, tl.where(norm >= 1e-12, 1.0, 0.0)


@triton.jit
def _through_normalisation(g, unit, scale, bends):
    return scale * (g - bends * tl.sum(g * unit, axis=0) * unit)


@triton.jit
def _entity(entity, id, d, there, dim: tl.constexpr, width: tl.constexpr, KIND: tl.constexpr):
    """Load the vectors of an entity."""
    row = entity + tl.load(id).to(tl.int64) * width
    x = tl.load(row + d, there, 0.0)
    own = tl.load(row + dim + d, there & (KIND == 2), 0.0)
    return x, own


@triton.jit
def _view(unit, own, w, KIND: tl.constexpr):
    """Return the view, and how far the entity goes along the vector that moves it."""
    along = tl.zeros([], tl.float32)
    view = unit
    if KIND == 1:
        along = tl.sum(w * unit, axis=0)
        view = unit - along * w
    elif KIND == 2:
        along = tl.sum(own * unit, axis=0)
        view = unit + along * w
    return view, along


@triton.jit
def _through_view(g, unit, own, w, along, KIND: tl.constexpr):
    """Return the gradients of the unit vector, of ``own`` and of ``w`` from that of the view."""
    of_unit, of_own, of_w = g, g, g
    if KIND == 1:
        across = tl.sum(w * g, axis=0)
        of_unit = g - across * w
        of_w = -(along * g + across * unit)
    elif KIND == 2:
        across = tl.sum(w * g, axis=0)
        of_unit = g + across * own
        of_own = across * unit
        of_w = along * g
    return of_unit, of_own, of_w


@triton.jit
def _compare(head, r, tail, same, NORM: tl.constexpr):
    """Return the score and its gradient by the head's view; an entity less itself is nothing."""
    gap = tl.where(same, r, head + r - tail)
    if NORM == 1:
        distance = tl.sum(tl.abs(gap), axis=0)
        g = tl.where(gap > 0, -1.0, tl.where(gap < 0, 1.0, 0.0))
    else:
        distance = tl.sqrt(tl.sum(gap * gap, axis=0))
        g = -gap / tl.where(distance > 0, distance, 1.0)
    return -distance, g


@triton.jit
def _store_entity(
    g, unit, own, w, along, scale, bends, row, d, there, dim: tl.constexpr, KIND: tl.constexpr
):
    """Store an entity's gradient; return what its view adds to that of ``w``."""
    of_unit, of_own, of_w = _through_view(g, unit, own, w, along, KIND)
    tl.store(row + d, _through_normalisation(of_unit, unit, scale, bends), mask=there)
    tl.store(row + dim + d, of_own, mask=there & (KIND == 2))
    return of_w


@triton.jit
def _gradients(
    entity,
    relation,
    heads,
    relations,
    tails,
    negatives,
    replaces_head,
    weight,
    entity_rows,
    relation_rows,
    scores,
    losses,
    count,
    margin,
    dim: tl.constexpr,
    width: tl.constexpr,
    relation_width: tl.constexpr,
    K: tl.constexpr,
    NORM: tl.constexpr,
    KIND: tl.constexpr,
    RANKING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    there = d < dim
    h, h_own = _entity(entity, heads + i, d, there, dim, width, KIND)
    t, t_own = _entity(entity, tails + i, d, there, dim, width, KIND)
    head, tail = tl.load(heads + i), tl.load(tails + i)
    r_row = relation + tl.load(relations + i).to(tl.int64) * relation_width
    r = tl.load(r_row + d, there, 0.0)
    w = tl.load(r_row + dim + d, there & (KIND != 0), 0.0)
    w_scale, w_bends = 1.0, 1.0
    if KIND == 1:
        w, w_scale, w_bends = _normalise(w)
    h, h_scale, h_bends = _normalise(h)
    t, t_scale, t_bends = _normalise(t)
    h_view, h_along = _view(h, h_own, w, KIND)
    t_view, t_along = _view(t, t_own, w, KIND)
    positive, g = _compare(h_view, r, t_view, head == tail, NORM)
    loss, slope = positive_loss(positive, RANKING)
    of_h = tl.zeros([BLOCK], tl.float32)
    of_t = tl.zeros([BLOCK], tl.float32)
    of_r = tl.zeros([BLOCK], tl.float32)
    of_w = tl.zeros([BLOCK], tl.float32)
    for j in range(K):
        place = i * K + j
        swap = tl.load(replaces_head + place) != 0
        n, n_own = _entity(entity, negatives + place, d, there, dim, width, KIND)
        n, n_scale, n_bends = _normalise(n)
        n_view, n_along = _view(n, n_own, w, KIND)
        same = tl.load(negatives + place) == tl.where(swap, tail, head)
        x, y = tl.where(swap, n_view, h_view), tl.where(swap, t_view, n_view)
        negative, pushed = _compare(x, r, y, same, NORM)
        tl.store(scores + place, negative)
        more, release, pull = negative_loss(
            positive, negative, tl.load(weight + place), margin, RANKING
        )
        loss += more
        slope += release
        pushed *= pull
        of_r += pushed
        of_h += tl.where(swap, 0.0, pushed)
        of_t -= tl.where(swap, pushed, 0.0)
        pushed = tl.where(swap, pushed, -pushed)
        row = entity_rows + (2 * count + place) * width
        of_w += _store_entity(
            pushed, n, n_own, w, n_along, n_scale, n_bends, row, d, there, dim, KIND
        )
    tl.store(losses + i, loss)
    g *= slope
    row = entity_rows + i * width
    of_w += _store_entity(
        of_h + g, h, h_own, w, h_along, h_scale, h_bends, row, d, there, dim, KIND
    )
    row = entity_rows + (count + i) * width
    of_w += _store_entity(
        of_t - g, t, t_own, w, t_along, t_scale, t_bends, row, d, there, dim, KIND
    )
    row = relation_rows + i * relation_width
    tl.store(row + d, of_r + g, mask=there)
    if KIND == 1:
        of_w = _through_normalisation(of_w, w, w_scale, w_bends)
    tl.store(row + dim + d, of_w, mask=there & (KIND != 0))


def gradients(*arrays: Any) -> None:
    """Do what :func:`nscaching.models.gradients.translational_cpu.gradients` does, on a GPU."""
    *tensors, norm, kind, margin = arrays
    entity, relation, negatives = tensors[0], tensors[1], tensors[5]
    width = entity.shape[1]
    dim = width // 2 if kind == PROJECTION else width
    count, k = negatives.shape
    block = triton.next_power_of_2(dim)
    sizes = (dim, width, relation.shape[1], k)
    settings = (norm, kind, margin > 0, block)
    _gradients[(count,)](*tensors, count, float(margin), *sizes, *settings, num_warps=warps(block))
