"""Distances on the CPU: forward and backward fused with the gather, as Numba loops.

The functions at the end are the CPU forms that the registry names. Rows that come later are asked
for ahead of their use. Compiled on first use and kept on disk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from nscaching.kernels.int8_cpu import AHEAD, fetch_rows
from nscaching.kernels.numba_tools import (
    Array,
    arrays,
    fetch_row,
    inline,
    parallel,
    unless_padding,
)

#: What a norm is at least when something is divided by it, as in ``torch.nn.functional.normalize``.
_TINY = np.float32(1e-12)
#: Scales from here on come from a norm that was raised to the smallest one.
_LARGEST_SCALE = np.float32(9.9e11)
#: Queries between the one whose rows are asked for and the one at hand.
QUERIES_AHEAD = 2
#: Views, as :mod:`nscaching.models.match` counts them.
_NO_VIEW, _UNIT, _HYPERPLANE, _PROJECTION = 0, 1, 2, 3


@inline
def fetch_later(table: Array, ids: Array, i: int) -> None:
    """Ask for the rows of a query that comes soon."""
    later = min(i + QUERIES_AHEAD, ids.shape[0] - 1)
    for j in range(min(ids.shape[1], AHEAD)):
        fetch_row(table, max(ids[later, j], 0))


# Distances ---------------------------------------------------------------------------------------


@inline
def _dot(a: Array, row: int, b: Array, other: int, start: int, dim: int) -> Any:
    """Dot product of the first ``dim`` numbers of a row, and of those from ``start`` of another."""
    total = np.float32(0)
    for d in range(dim):
        total += a[row, d] * b[other, start + d]
    return total


@inline
def view_of(table: Array, x: int, context: Array, i: int, view: int, dim: int) -> Any:
    """Return scale, shift and product: the view of an entity is ``scale x + shift context``.

    The product is that with the context (hyperplane) or with the row's second half (projection).
    """
    scale, shift, product = np.float32(1), np.float32(0), np.float32(0)
    if view != _NO_VIEW:
        square = _dot(table, x, table, x, 0, dim)
        scale = np.float32(1) / max(np.float32(math.sqrt(square)), _TINY)
    if view == _HYPERPLANE:
        product = scale * _dot(table, x, context, i, 0, dim)
        shift = -product
    elif view == _PROJECTION:
        product = scale * _dot(table, x, table, x, dim, dim)
        shift = product
    return scale, shift, product


@parallel
def _distance_forward(
    query: Array, context: Array, table: Array, ids: Array, scores: Array, norm: int, view: int
) -> None:
    # The view is written out here: with calls this loop takes 1.2 to 1.5 times as long.
    k, dim = ids.shape[1], query.shape[1]
    for i in prange(ids.shape[0]):
        fetch_rows(table, ids[i])
        for j in range(k):
            if j + AHEAD < k:
                fetch_row(table, max(ids[i, j + AHEAD], 0))
            x = max(ids[i, j], 0)
            scale, shift = np.float32(1), np.float32(0)
            if view != _NO_VIEW:
                square = np.float32(0)
                for d in range(dim):
                    square += table[x, d] * table[x, d]
                scale = np.float32(1) / max(np.float32(math.sqrt(square)), _TINY)
            if view == _HYPERPLANE:
                for d in range(dim):
                    shift -= context[i, d] * table[x, d]
            elif view == _PROJECTION:
                for d in range(dim):
                    shift += table[x, dim + d] * table[x, d]
            shift *= scale
            total = np.float32(0)
            if view < _HYPERPLANE:
                if norm == 1:
                    for d in range(dim):
                        total += abs(query[i, d] - scale * table[x, d])
                else:
                    for d in range(dim):
                        gap = query[i, d] - scale * table[x, d]
                        total += gap * gap
            elif norm == 1:
                for d in range(dim):
                    total += abs(query[i, d] - scale * table[x, d] - shift * context[i, d])
            else:
                for d in range(dim):
                    gap = query[i, d] - scale * table[x, d] - shift * context[i, d]
                    total += gap * gap
            distance = total if norm == 1 else np.float32(math.sqrt(total))
            scores[i, j] = unless_padding(-distance, ids[i, j])


@inline
def through_view(
    table: Array, x: int, context: Array, i: int, scale: Any, product: Any, view: int, dim: int,
    rows: Array, row: int, d_context: Array, place: int,
) -> None:  # fmt: skip
    """Turn the gradient of a view, in ``row``, into that of the entity and of the context."""
    if view == _NO_VIEW:
        return
    across = np.float32(0)
    if view != _UNIT:
        across = _dot(rows, row, context, i, 0, dim)
    if view == _HYPERPLANE:
        for d in range(dim):
            g, unit = rows[row, d], scale * table[x, d]
            d_context[place, d] -= product * g + across * unit
            rows[row, d] = g - across * context[i, d]
    elif view == _PROJECTION:
        for d in range(dim):
            g = rows[row, d]
            d_context[place, d] += product * g
            rows[row, d] = g + across * table[x, dim + d]
            rows[row, dim + d] = across * scale * table[x, d]
    along = scale * _dot(rows, row, table, x, 0, dim)
    along = along if scale < _LARGEST_SCALE else np.float32(0)  # else the scale is a constant
    for d in range(dim):
        rows[row, d] = scale * (rows[row, d] - along * scale * table[x, d])


@parallel
def _distance_backward(
    query: Array, context: Array, table: Array, ids: Array, d_scores: Array,
    d_query: Array, d_context: Array, rows: Array, norm: int, view: int,
) -> None:  # fmt: skip
    k, dim = ids.shape[1], query.shape[1]
    for place in prange(ids.shape[0]):
        i: Any = np.int64(place)  # prange counts unsigned, and unsigned plus signed is a float
        fetch_later(table, ids, i)
        d_query[i] = 0
        d_context[i] = 0
        for j in range(k):
            x, row = ids[i, j], i * k + j
            slope = d_scores[i, j]
            if x < 0 or slope == 0:
                rows[row] = 0
                continue
            scale, shift, product = view_of(table, x, context, i, view, dim)
            if norm == 2:
                square = np.float32(0)
                for d in range(dim):
                    gap = query[i, d] - scale * table[x, d] - shift * context[i, d]
                    square += gap * gap
                slope = slope / np.float32(math.sqrt(square)) if square > 0 else np.float32(0)
            for d in range(dim):
                gap = query[i, d] - scale * table[x, d]
                gap = gap if shift == 0 else gap - shift * context[i, d]
                if norm == 1:
                    sign = np.float32(1) if gap > 0 else np.float32(-1)
                    gap = sign if gap != 0 else np.float32(0)
                d_query[i, d] -= slope * gap
                rows[row, d] = slope * gap
            through_view(table, x, context, i, scale, product, view, dim, rows, row, d_context, i)


# Complex modulus ---------------------------------------------------------------------------------


@parallel
def _modulus_forward(query: Array, table: Array, ids: Array, scores: Array) -> None:
    k, dim = ids.shape[1], query.shape[1] // 2
    for i in prange(ids.shape[0]):
        fetch_rows(table, ids[i])
        for j in range(k):
            if j + AHEAD < k:
                fetch_row(table, max(ids[i, j + AHEAD], 0))
            x = max(ids[i, j], 0)
            total = np.float32(0)
            for d in range(dim):
                re = query[i, d] - table[x, d]
                im = query[i, dim + d] - table[x, dim + d]
                total += np.float32(math.sqrt(re * re + im * im))
            scores[i, j] = unless_padding(-total, ids[i, j])


@parallel
def _modulus_backward(
    query: Array, table: Array, ids: Array, d_scores: Array, d_query: Array, rows: Array
) -> None:
    k, dim = ids.shape[1], query.shape[1] // 2
    for place in prange(ids.shape[0]):
        i: Any = np.int64(place)  # prange counts unsigned, and unsigned plus signed is a float
        fetch_later(table, ids, i)
        d_query[i] = 0
        for j in range(k):
            x, row = ids[i, j], i * k + j
            slope = d_scores[i, j]
            if x < 0 or slope == 0:
                rows[row] = 0
                continue
            for d in range(dim):
                re = query[i, d] - table[x, d]
                im = query[i, dim + d] - table[x, dim + d]
                modulus = np.float32(math.sqrt(re * re + im * im))
                factor = slope / (modulus if modulus > 0 else np.float32(1))
                d_query[i, d] -= factor * re
                d_query[i, dim + d] -= factor * im
                rows[row, d] = factor * re
                rows[row, dim + d] = factor * im


# The forms that the registry names ---------------------------------------------------------------


def scores_of(kernel: Any, ids: Tensor, *tensors: Tensor, settings: tuple[int, ...] = ()) -> Tensor:
    """Run a kernel that writes scores (b, k) after the tensors and the ids."""
    scores = torch.empty(ids.shape)
    kernel(*arrays(*tensors, ids, scores), *settings)
    return scores


def distance_forward(query: Any, table: Tensor, ids: Tensor, norm: int, view: int) -> Tensor:
    """Score candidates by the negative distance of their view. Shape: (b, k)."""
    context = query.vectors if query.context is None else query.context
    return scores_of(_distance_forward, ids, query.vectors, context, table, settings=(norm, view))


def distance_backward(
    query: Any, table: Tensor, ids: Tensor, d_scores: Tensor, norm: int, view: int
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the gradients of queries and contexts (b, q) and of the candidates' rows (b k, w)."""
    d_query, d_context = torch.empty_like(query.vectors), torch.empty_like(query.vectors)
    rows = torch.empty(ids.numel(), table.shape[1])
    context = query.vectors if query.context is None else query.context
    tensors = (query.vectors, context, table, ids, d_scores, d_query, d_context, rows)
    _distance_backward(*arrays(*tensors), norm, view)
    return d_query, None if query.context is None else d_context, rows


def modulus_forward(query: Any, table: Tensor, ids: Tensor) -> Tensor:
    """Score candidates by the negative sum of complex moduli. Shape: (b, k)."""
    return scores_of(_modulus_forward, ids, query.vectors, table)


def modulus_backward(
    query: Any, table: Tensor, ids: Tensor, d_scores: Tensor
) -> tuple[Tensor, None, Tensor]:
    """Return the gradients of queries (b, q) and of the candidates' rows (b k, q)."""
    d_query, rows = torch.empty_like(query.vectors), torch.empty(ids.numel(), table.shape[1])
    _modulus_backward(*arrays(query.vectors, table, ids, d_scores, d_query, rows))
    return d_query, None, rows
