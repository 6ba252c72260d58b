"""Dot products with rows in random order, and the bytes of a ``CompactTable``, as Numba loops."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from nscaching.llvm import LINE_BYTES, prefetch
from nscaching.scoring.compact import LARGEST, TINY
from nscaching.scoring.compiled import Array, inline, parallel

#: Rows that are on their way from memory while others are compared.
_AHEAD = 8


@inline
def fetch_rows(table: Array, ids: Array) -> None:
    """Ask memory for the rows that are compared first."""
    for j in range(min(ids.shape[0], _AHEAD)):
        for byte in range(0, table.shape[1] * table.itemsize, LINE_BYTES):
            prefetch(table, max(ids[j], 0), byte)


@inline
def dot_rows(query: Array, table: Array, ids: Array, scores: Array) -> None:
    """One query with its rows, four at a time; the rows that come after are asked for.

    An id of -1 is taken for 0.
    """
    width = query.shape[0]
    k = ids.shape[0]
    row_bytes = width * table.itemsize
    for j in range(0, k - 3, 4):
        for later in range(j + _AHEAD, min(k, j + _AHEAD + 4)):
            for byte in range(0, row_bytes, LINE_BYTES):
                prefetch(table, max(ids[later], 0), byte)
        w, x, y, z = max(ids[j], 0), max(ids[j + 1], 0), max(ids[j + 2], 0), max(ids[j + 3], 0)
        one, two, three, four = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for d in range(width):
            q = query[d]
            one += q * np.float32(table[w, d])
            two += q * np.float32(table[x, d])
            three += q * np.float32(table[y, d])
            four += q * np.float32(table[z, d])
        scores[j], scores[j + 1] = one, two
        scores[j + 2], scores[j + 3] = three, four
    for j in range(k - k % 4, k):
        row = max(ids[j], 0)
        total = np.float32(0)
        for d in range(width):
            total += query[d] * np.float32(table[row, d])
        scores[j] = total


@parallel
def dot_product(query: Array, table: Array, ids: Array, scores: Array) -> None:
    """``q . x``."""
    for i in prange(ids.shape[0]):
        fetch_rows(table, ids[i])
        dot_rows(query[i], table, ids[i], scores[i])


@parallel
def compact_dot_product(
    query: Array, values: Array, scale: Array, ids: Array, scores: Array
) -> None:
    """``q . x`` from a :class:`~nscaching.scoring.compact.CompactTable`."""
    for i in prange(ids.shape[0]):
        fetch_rows(values, ids[i])
        dot_rows(query[i], values, ids[i], scores[i])
        for j in range(ids.shape[1]):
            scores[i, j] *= scale[max(ids[i, j], 0)]


@njit(cache=True, nogil=True, error_model="numpy")
def write_row(row: Array, values: Array, scale: Array) -> None:
    """Write a row of a ``CompactTable`` and its scale (1,)."""
    largest = scale.view(np.int32)
    bits = row.view(np.int32)
    scale[0] = np.float32(TINY)
    most = largest[0]
    for d in range(row.shape[0]):  # without their sign, bits sort as their floats, and vectorise
        most = max(most, bits[d] & np.int32(0x7FFFFFFF))
    largest[0] = most
    steps = np.float32(1) / scale[0] * np.float32(LARGEST)
    for d in range(row.shape[0]):
        values[d] = np.int8(np.int32(row[d] * steps + np.float32(LARGEST + 1.5)) - (LARGEST + 1))
    scale[0] *= np.float32(1 / LARGEST)


@njit(parallel=True, cache=True, nogil=True, error_model="numpy")
def write_rows(table: Array, values: Array, scale: Array) -> None:
    """Write all rows. Shapes: (n, width) twice, (n,)."""
    for row in prange(table.shape[0]):
        write_row(table[row], values[row], scale[row : row + 1])
