"""Queries on the CPU: bilinear ones and views of anchors, fused with the gather, as Numba loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from nscaching.kernels.match_cpu import through_view, view_of
from nscaching.kernels.numba_tools import Array, arrays, fetch_row, inline, inside, parallel

_NONE = np.empty(0, dtype=np.int64)
#: The view of TransD, as :mod:`nscaching.models.match` counts them.
_PROJECTION = 3
#: Questions between the one whose row is asked for and the one at hand.
_AHEAD = 4


@inline
def _listed(terms: Array, dim: int) -> Any:
    """Return the products that each part of an output is the sum of, and how many there are.

    A product is where its part of either factor begins, and its sign: the loop over questions has
    no time to look for them. Shapes: (2, O, P, Q) -> (2, O, P Q, 3), (2, O).
    """
    parts, others = terms.shape[2:]
    products = np.zeros((2, terms.shape[1], parts * others, 3), dtype=np.int64)
    counts = np.zeros((2, terms.shape[1]), dtype=np.int64)
    for side in range(2):
        for o in range(terms.shape[1]):
            for p in range(parts):
                for q in range(others):
                    n, sign = counts[side, o], terms[side, o, p, q]
                    if sign != 0:
                        products[side, o, n, 0] = p * dim
                        products[side, o, n, 1] = q * dim
                        products[side, o, n, 2] = sign
                        counts[side, o] += 1
    return products, counts


@inside
def _product(listed: Any, side: int, o: int, n: int, a: Array, b: Array, dim: int) -> Any:
    """Return the sign of a product, and its parts of either factor."""
    products, _ = listed
    p, q = products[side, o, n, 0], products[side, o, n, 1]
    return np.float32(products[side, o, n, 2]), a[p : p + dim], b[q : q + dim]


@inside
def _sum_products(outputs: Array, listed: Any, side: int, a: Array, b: Array, dim: int) -> None:
    """Write sums of products of parts of ``a`` and of ``b``, two products per pass.

    Parts are slices, since a loop over numbers from an offset on would not vectorise.
    Shapes: (O dim,), those of :func:`_listed`, (P dim,), (Q dim,).
    """
    _, counts = listed
    for o in range(counts.shape[1]):
        out, count = outputs[o * dim : o * dim + dim], counts[side, o]
        if count == 0:
            out[:] = 0
        for n in range(0, count, 2):
            f, x, y = _product(listed, side, o, n, a, b, dim)
            if n + 1 < count:
                g, u, v = _product(listed, side, o, n + 1, a, b, dim)
                if n == 0:
                    for d in range(dim):
                        out[d] = f * x[d] * y[d] + g * u[d] * v[d]
                else:
                    for d in range(dim):
                        out[d] += f * x[d] * y[d] + g * u[d] * v[d]
            elif n == 0:
                for d in range(dim):
                    out[d] = f * x[d] * y[d]
            else:
                for d in range(dim):
                    out[d] += f * x[d] * y[d]


@inline
def _question(heads: Array, tails: Array, i: int, asked: Array) -> Any:
    """Return the anchor, the triple and the side (1 for tails) of a question."""
    place = asked[i] if asked.shape[0] > 0 else i
    count = heads.shape[0]
    side = np.int64(1 if place >= count else 0)
    triple = place - side * count
    return (heads[triple] if side == 1 else tails[triple]), triple, side


@parallel
def _bilinear_forward(
    entity: Array, relation: Array, heads: Array, relations: Array, tails: Array, terms: Array,
    second_half: int, none: Array, queries: Array,
) -> None:  # fmt: skip
    dim, last = entity.shape[1] // terms.shape[2], queries.shape[0] - 1
    listed = _listed(terms, dim)
    for place in prange(queries.shape[0]):
        i: Any = np.int64(place)  # prange counts unsigned, and unsigned plus signed is a float
        later, _, _ = _question(heads, tails, min(i + _AHEAD, last), none)
        fetch_row(entity, later)
        x, triple, side = _question(heads, tails, i, none)
        y = relations[triple] + (second_half if side == 0 else 0)
        _sum_products(queries[i], listed, side, entity[x], relation[y], dim)


@parallel
def _bilinear_backward(
    entity: Array, relation: Array, heads: Array, relations: Array, tails: Array,
    terms: Array, second_half: int, asked: Array, d_query: Array, anchors: Array, d_entity: Array,
    rows: Array, d_relation: Array,
) -> None:  # fmt: skip
    dim, last = entity.shape[1] // terms.shape[2], d_query.shape[0] - 1
    by_anchor = _listed(terms.transpose(0, 2, 1, 3), dim)
    by_relation = _listed(terms.transpose(0, 3, 1, 2), dim)
    for place in prange(d_query.shape[0]):
        i: Any = np.int64(place)
        later, _, _ = _question(heads, tails, min(i + _AHEAD, last), asked)
        fetch_row(entity, later)
        x, triple, side = _question(heads, tails, i, asked)
        y = relations[triple] + (second_half if side == 0 else 0)
        anchors[i] = x
        rows[i] = y
        _sum_products(d_entity[i], by_anchor, side, d_query[i], relation[y], dim)
        _sum_products(d_relation[i], by_relation, side, d_query[i], entity[x], dim)


@parallel
def _translation_forward(
    table: Array, heads: Array, tails: Array, context: Array, relation: Array, view: int,
    none: Array, queries: Array,
) -> None:  # fmt: skip
    dim, last = queries.shape[1], queries.shape[0] - 1
    for place in prange(queries.shape[0]):
        i: Any = np.int64(place)
        later, _, _ = _question(heads, tails, min(i + _AHEAD, last), none)
        fetch_row(table, later)
        x, triple, side = _question(heads, tails, i, none)
        sign = np.float32(1) if side == 1 else np.float32(-1)
        scale, shift, _ = view_of(table, x, context, triple, view, dim)
        for d in range(dim):
            queries[i, d] = scale * table[x, d] + sign * relation[triple, d]
        if shift != 0:
            for d in range(dim):
                queries[i, d] += shift * context[triple, d]


@parallel
def _translation_backward(
    table: Array, heads: Array, tails: Array, context: Array, view: int, asked: Array,
    d_query: Array, anchors: Array, rows: Array, d_context: Array, d_translation: Array,
) -> None:  # fmt: skip
    dim, last = d_query.shape[1], d_query.shape[0] - 1
    for place in prange(d_query.shape[0]):
        i: Any = np.int64(place)
        later, _, _ = _question(heads, tails, min(i + _AHEAD, last), asked)
        fetch_row(table, later)
        x, triple, side = _question(heads, tails, i, asked)
        sign = np.float32(1) if side == 1 else np.float32(-1)
        anchors[i] = x
        d_context[i] = 0
        scale, _, product = view_of(table, x, context, triple, view, dim)
        for d in range(dim):
            rows[i, d] = d_query[i, d]
            d_translation[i, d] = sign * d_query[i, d]
        through_view(table, x, context, triple, scale, product, view, dim, rows, i, d_context, i)


@parallel
def _take_rows(rows: Array, places: Array, taken: Array) -> None:
    for i in prange(places.shape[0]):
        row = rows[places[i]]
        for d in range(rows.shape[1]):
            taken[i, d] = row[d]


# The forms that the registry names ---------------------------------------------------------------


def take_rows(rows: Tensor, places: Tensor) -> Tensor:
    """Return rows by their places. Shapes: (n, w), (m,) -> (m, w)."""
    taken = torch.empty(len(places), rows.shape[1])
    _take_rows(*arrays(rows, places, taken))
    return taken


def _asked(questions: Any) -> Array:
    """Return which questions are asked as the loops take it: none if it is all of them."""
    return _NONE if questions.asked is None else questions.asked.numpy()


def bilinear_forward(entity: Tensor, relation: Tensor, questions: Any, terms: Tensor) -> Tensor:
    """Return the queries for heads, then for tails. Shape: (2b, w)."""
    heads, relations, tails, second_half, _ = questions
    queries = torch.empty(2 * len(heads), entity.shape[1])
    inputs = arrays(entity, relation, heads, relations, tails, terms)
    _bilinear_forward(*inputs, second_half, _NONE, queries.numpy())
    return queries


def bilinear_backward(
    entity: Tensor, relation: Tensor, questions: Any, terms: Tensor, d_query: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return anchors (m,), gradients of their rows (m, w), relation rows (m,), theirs (m, rw)."""
    count = len(d_query)
    anchors, rows = torch.empty(2, count, dtype=torch.int64)
    d_entity = torch.empty(count, entity.shape[1])
    d_relation = torch.empty(count, relation.shape[1])
    inputs = arrays(entity, relation, *questions[:3], terms)
    outputs = arrays(d_query, anchors, d_entity, rows, d_relation)
    _bilinear_backward(*inputs, questions.second_half, _asked(questions), *outputs)
    return anchors, d_entity, rows, d_relation


def translation_forward(
    table: Tensor, questions: Any, context: Tensor, view: int, relation: Tensor
) -> Tensor:
    """Return the queries for heads, then for tails; context, relation (b, .). Shape: (2b, q)."""
    dim = table.shape[1] // 2 if view == _PROJECTION else table.shape[1]
    queries = torch.empty(2 * len(questions.heads), dim)
    inputs = arrays(table, questions.heads, questions.tails, context, relation)
    _translation_forward(*inputs, view, _NONE, queries.numpy())
    return queries


def translation_backward(
    table: Tensor, questions: Any, context: Tensor, view: int, d_query: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return anchors (m,), gradients of rows (m, w), contexts (m, q) and translations (m, q)."""
    count = len(d_query)
    anchors = torch.empty(count, dtype=torch.int64)
    rows = torch.empty(count, table.shape[1])
    d_context, d_translation = torch.empty(2, *d_query.shape)
    inputs = arrays(table, questions.heads, questions.tails, context)
    outputs = arrays(d_query, anchors, rows, d_context, d_translation)
    _translation_backward(*inputs, view, _asked(questions), *outputs)
    return anchors, rows, d_context, d_translation
