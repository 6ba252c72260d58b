"""Dense Adam on the CPU in one pass, from gradients of the few rows that have one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from nscaching.llvm import float_of
from nscaching.scoring.dot_kernels import TINY_BITS, larger_bits, write_bytes

Array = np.ndarray[Any, Any]
#: Rows moved before their bytes are written: a row's bytes wait for its largest number, and others
#: are moved meanwhile. More rows would not stay in the nearest memory.
_BLOCK = 4


@njit(cache=True, nogil=True, error_model="numpy")
def gather_rows(ids: Array, gradient: Array, slot: Array) -> None:
    """Add up the gradient rows of each id in its first row, and note that row in ``slot``.

    Shapes: ids (m,), gradient (m, width); slot (n,) is -1 before, and again after ``adam``.
    """
    for i in range(ids.shape[0]):
        row = ids[i]
        first = slot[row]
        if first < 0:
            slot[row] = i
        else:
            for d in range(gradient.shape[1]):
                gradient[first, d] += gradient[i, d]


@njit(parallel=True, fastmath=True, cache=True, nogil=True, error_model="numpy")
def adam(
    table: Array,
    mean: Array,
    square: Array,
    slot: Array,
    gradient: Array,
    copy: Array,
    copy_scale: Array,
    step_size: float,
    beta1: float,
    beta2: float,
    correction2: float,
    epsilon: float,
    decay: float,
    lazy: bool,
) -> None:
    """Move every row, or those with a gradient where ``lazy``.

    ``slot`` says which row of ``gradient`` is a row's own, or -1, and becomes -1. ``copy`` and
    ``copy_scale`` are those of a :class:`~nscaching.scoring.compact.CompactTable`, or empty.

    ``step_size`` is lr / (1 - beta1^t), ``correction2`` is sqrt(1 - beta2^t).
    Shapes: table, mean, square, copy (n, width); slot, copy_scale (n,); gradient (u, width).
    """
    width = table.shape[1]
    lr, eps, wd = np.float32(step_size), np.float32(epsilon), np.float32(decay)
    b1, b2, root = np.float32(beta1), np.float32(beta2), np.float32(1 / correction2)
    c1, c2 = np.float32(1 - beta1), np.float32(1 - beta2)
    copied = copy.shape[0] > 0
    for block in prange((table.shape[0] + _BLOCK - 1) // _BLOCK):
        first: Any = np.int64(block) * _BLOCK
        stop = min(table.shape[0], first + _BLOCK)
        for row in range(first, stop):
            own = slot[row]
            if lazy and own < 0:
                continue
            bits = TINY_BITS
            for d in range(width):
                p = table[row, d]
                g = wd * p
                if own >= 0:
                    g += gradient[own, d]
                m = b1 * mean[row, d] + c1 * g
                v = b2 * square[row, d] + c2 * g * g
                mean[row, d] = m
                square[row, d] = v
                p -= lr * m / (np.float32(math.sqrt(v)) * root + eps)
                table[row, d] = p
                bits = larger_bits(bits, p)
            if copied:
                copy_scale[row] = float_of(bits)
        for row in range(first, stop):
            if copied and not (lazy and slot[row] < 0):
                copy_scale[row] = write_bytes(table[row], copy_scale[row], copy[row])
            slot[row] = -1
