"""Distances from a query to rows of a table as they stand, for models that are not ours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from nscaching.kernels.llvm import LINE_BYTES, prefetch

_jit = njit(parallel=True, fastmath=True, cache=True, nogil=True, error_model="numpy")
Array = np.ndarray[Any, Any]
#: Rows that are on their way from memory while others are compared.
_AHEAD = 8


@_jit
def plain_distance(query: Array, table: Array, ids: Array, scores: Array, norm: int) -> None:
    """``-||q - x||_p`` for p = 1 or 2. Shapes: (b, d), (n, d), (b, k) -> (b, k)."""
    width = query.shape[1]
    row_bytes = width * table.itemsize
    k = ids.shape[1]
    for i in prange(ids.shape[0]):
        for j in range(k):
            if j + _AHEAD < k:
                for byte in range(0, row_bytes, LINE_BYTES):
                    prefetch(table, ids[i, j + _AHEAD], byte)
            row = ids[i, j]
            total = np.float32(0)
            if norm == 1:
                for d in range(width):
                    total += abs(query[i, d] - table[row, d])
                scores[i, j] = -total
            else:
                for d in range(width):
                    gap = query[i, d] - table[row, d]
                    total += gap * gap
                scores[i, j] = -np.float32(math.sqrt(total))
