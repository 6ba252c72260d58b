"""The norm of a batch's gradient on the CPU, in one pass over its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]


@njit(fastmath=True, cache=True, nogil=True, error_model="numpy")
def squared_norm(ids: Array, rows: Array, last: Array) -> float:
    """Return the squared l2 norm of the rows, those with the same id added up before.

    Shapes: ids (m,), rows (m, width); last (n,) is -1, before and after.
    """
    before = np.empty(ids.shape[0], dtype=np.int32)
    for i in range(ids.shape[0]):
        before[i] = last[ids[i]]
        last[ids[i]] = i
    whole = np.empty(rows.shape[1], dtype=np.float32)
    total = 0.0
    for i in range(ids.shape[0]):
        if last[ids[i]] != i:
            continue
        last[ids[i]] = -1
        for d in range(rows.shape[1]):
            whole[d] = rows[i, d]
        j = before[i]
        while j >= 0:
            for d in range(rows.shape[1]):
                whole[d] += rows[j, d]
            j = before[j]
        part = np.float32(0)
        for d in range(rows.shape[1]):
            part += whole[d] * whole[d]
        total += float(part)
    return total
