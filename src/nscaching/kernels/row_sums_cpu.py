"""Gradients of a table's rows, added up on the CPU while a row is moved.

An entity stands at several places of a batch. One short pass over the ids links the places of each
row to a chain; whoever moves the row walks its chain. So no gradient is added up serially, and the
order of a sum is that of the places, whatever the number of threads.

A gradient comes in three parts, so that nobody need join them: rows that are written out, ``first``
and then ``second``, and products, which are not: ``slopes`` (q, k) are k numbers per vector, and
``places`` (q,) say which of ``vectors`` (v, width) those are; all, in their order, if it is empty.
Any of them may be empty.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor

from nscaching.kernels.numba_tools import Array, arrays, exact_inline, fetch_row, inside

_NO_PLACES = np.empty(0, dtype=np.int64)


@exact_inline
def chain_places(ids: Array, slot: Array, following: Array, rows: Array) -> int:
    """Link the places of each id: ``slot`` has its first, ``following`` the next one, else -1.

    ``rows`` takes the distinct ids; their number is returned. An id of -1 is padding.
    Shapes: ids, following, rows (m,); slot (n,), which is -1 before.
    """
    count = 0
    for i in range(ids.shape[0] - 1, -1, -1):
        row = ids[i]
        if row >= 0:
            place = slot[row]
            if place < 0:
                rows[count] = row
                count += 1
            following[i] = place
            slot[row] = i
    return count


@inside
def places_of(gradient: Any) -> int:
    """Return how many places a gradient has."""
    first, second, slopes, _, _ = gradient
    return first.shape[0] + second.shape[0] + slopes.shape[0] * slopes.shape[1]


@inside
def _vector(gradient: Any, product: int) -> Any:
    """Return which vector a product is one of, and the slope."""
    _, _, slopes, _, places = gradient
    k = np.uint32(slopes.shape[1])
    question = np.int64(np.uint32(product) // k)  # places are int32: a short division will do
    slope = slopes[question, product - question * slopes.shape[1]]
    return (places[question] if places.shape[0] > 0 else question), slope


@inside
def fetch_place(gradient: Any, place: int) -> None:
    """Ask for what stands at a place."""
    first, second, _, vectors, _ = gradient
    written = first.shape[0] + second.shape[0]
    if place < first.shape[0]:
        fetch_row(first, place)
    elif place < written:
        fetch_row(second, place - first.shape[0])
    else:
        vector, _ = _vector(gradient, place - written)
        fetch_row(vectors, vector)


@inside
def sum_chain(gradient: Any, following: Array, place: int, total: Array) -> None:
    """Add up what stands at a place and at those that follow. Shape of the total: (width,)."""
    first, second, _, vectors, _ = gradient
    written = first.shape[0] + second.shape[0]
    width = total.shape[0]
    for d in range(width):
        total[d] = 0
    while 0 <= place < written:
        later = following[place]
        if later >= 0:
            fetch_place(gradient, later)
        if place < first.shape[0]:
            for d in range(width):
                total[d] += first[place, d]
        else:
            other = place - first.shape[0]
            for d in range(width):
                total[d] += second[other, d]
        place = later
    while place >= 0:  # places ascend: these are products, two at a time
        vector, slope = _vector(gradient, place - written)
        place = following[place]
        if place >= 0:
            after, slope_after = _vector(gradient, place - written)
            place = following[place]
            for d in range(width):
                total[d] += slope * vectors[vector, d] + slope_after * vectors[after, d]
        else:
            for d in range(width):
                total[d] += slope * vectors[vector, d]


def no_gradient(table: Tensor) -> tuple[Array, ...]:
    """Return a gradient without places."""
    nothing = table.numpy()[:0]
    return nothing, nothing, nothing, nothing, _NO_PLACES


def as_gradient(
    first: Tensor, second: Tensor, slopes: Tensor, vectors: Tensor, places: Tensor | None
) -> tuple[Array, ...]:
    """Return a gradient as the compiled loops take it."""
    written = arrays(first, second, slopes, vectors)
    return *written, _NO_PLACES if places is None else places.numpy()


def listed_rows(ids: Tensor, slot: Array) -> tuple[Array, Array]:
    """Chain the places of ids; return what follows each place, and the distinct ids."""
    following = np.empty(len(ids), dtype=np.int32)
    rows = np.empty(len(ids), dtype=np.int64)
    return following, rows[: chain_places(ids.numpy(), slot, following, rows)]


class _Kept(threading.local):
    slots = np.empty(0, dtype=np.int32)


_kept = _Kept()


@contextmanager
def chained(ids: Tensor, table_rows: int) -> Iterator[tuple[Array, Array, Array]]:
    """Chain the places of ids; yield the first place of each row, what follows, the distinct ids.

    The array of first places has the length of the table, is -1 between two uses and is kept: to
    fill it would take longer than a step on few of many rows. One in use is out of reach, so that
    what is left of an error is not used again.
    """
    slot, _kept.slots = _kept.slots, _kept.slots[:0]
    if len(slot) < table_rows:
        slot = np.full(table_rows, -1, dtype=np.int32)
    following, rows = listed_rows(ids, slot)
    yield slot, following, rows
    slot[rows] = -1
    _kept.slots = slot
