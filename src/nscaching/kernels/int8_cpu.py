"""Dot products with rows in random order, and int8 copies of tables, as Numba loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from nscaching.kernels.constants import LARGEST, TINY
from nscaching.kernels.numba_tools import (
    LINE_BYTES,
    Array,
    arrays,
    bits_of,
    float_of,
    inline,
    parallel,
    prefetch,
    unless_padding,
)

#: Rows that are on their way from memory while others are compared.
AHEAD = 16
_always_inline: Any = njit(inline="always", error_model="numpy")
#: Added to a small float it leaves the nearest whole number in the lowest bits.
_ROUNDING = np.float32(1.5 * 2**23)
#: The bits of the smallest number that counts.
TINY_BITS = np.float32(TINY).view(np.int32)


@inline
def fetch_rows(table: Array, ids: Array) -> None:
    """Ask memory for the rows that are compared first."""
    for j in range(min(ids.shape[0], AHEAD)):
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
        for later in range(j + AHEAD, min(k, j + AHEAD + 4)):
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
def _dot_forward(query: Array, values: Array, scale: Array, ids: Array, scores: Array) -> None:
    for i in prange(ids.shape[0]):
        fetch_rows(values, ids[i])
        dot_rows(query[i], values, ids[i], scores[i])
        for j in range(ids.shape[1]):
            score = scores[i, j] * scale[max(ids[i, j], 0)]
            scores[i, j] = unless_padding(score, ids[i, j])


@_always_inline
def larger_bits(bits: Any, number: Any) -> Any:
    """Return the larger of what is kept of floats so far, as bits, and a number without its sign.

    Bits without their sign sort as their floats, and the loop vectorises, which one over floats
    does not.
    """
    return max(bits, bits_of(number) & np.int32(0x7FFFFFFF))


@_always_inline
def write_row(row: Array, largest: Any, values: Array) -> Any:
    """Write a row of an int8 copy and return its scale; ``largest`` is above 0."""
    steps = np.float32(LARGEST) / largest
    for d in range(row.shape[0]):
        values[d] = np.int8(bits_of(row[d] * steps + _ROUNDING))
    return largest * np.float32(1 / LARGEST)


@parallel
def _write_rows(table: Array, values: Array, scale: Array) -> None:
    for row in prange(table.shape[0]):
        bits = TINY_BITS
        for d in range(table.shape[1]):
            bits = larger_bits(bits, table[row, d])
        scale[row] = write_row(table[row], float_of(bits), values[row])


# The forms that the registry names ---------------------------------------------------------------


def int8_write(table: Tensor, values: Tensor, scale: Tensor) -> None:
    """Write the int8 copy of a table. Shapes: (n, width) twice, (n,)."""
    _write_rows(*arrays(table, values, scale))


def int8_dot_forward(query: Tensor, values: Tensor, scale: Tensor, ids: Tensor) -> Tensor:
    """Score candidates from an int8 copy. Shapes: (b, q), (n, q), (n,), (b, k) -> (b, k)."""
    scores = torch.empty(ids.shape)
    _dot_forward(*arrays(query, values, scale, ids, scores))
    return scores
