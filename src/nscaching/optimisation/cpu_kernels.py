"""Dense Adam on the CPU in one pass, from gradients of the few rows that have one.

Without weight decay the moments of a row without a gradient only shrink, by the same factors for
all its numbers. They are then left as they were at the row's last gradient, and the factors are
taken to the power of the steps since: a third of the memory traffic of a step is not needed.
"""

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
#: After so many steps without a gradient a row rests: what is left of its mean, 0.9^400, is 5e-19.
_RESTS_AFTER = 400


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
    since: Array,
    slot: Array,
    gradient: Array,
    copy: Array,
    copy_scale: Array,
    count: int,
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
    ``since`` is the step as of which a row's moments are stored; empty if they always are as of
    the step before, number ``count`` being this one.

    ``step_size`` is lr / (1 - beta1^t), ``correction2`` is sqrt(1 - beta2^t).
    Shapes: table, mean, square, copy (n, width); since, slot, copy_scale (n,); gradient (u, width).
    """
    width = table.shape[1]
    lr, eps, wd = np.float32(step_size), np.float32(epsilon), np.float32(decay)
    root = np.float32(1 / correction2)
    c1, c2 = np.float32(1 - beta1), np.float32(1 - beta2)
    log1, log2 = math.log(beta1), math.log(beta2)
    copied = copy.shape[0] > 0
    stored = since.shape[0] > 0
    for block in prange((table.shape[0] + _BLOCK - 1) // _BLOCK):
        first: Any = np.int64(block) * _BLOCK
        stop = min(table.shape[0], first + _BLOCK)
        for row in range(first, stop):
            own = slot[row]
            age = count - since[row] if stored else 1
            if own < 0 and (lazy or age > _RESTS_AFTER):
                continue
            bits = TINY_BITS
            b1, b2 = np.float32(math.exp(age * log1)), np.float32(math.exp(age * log2))
            if own < 0 and stored:
                own_lr, own_root = lr * b1, np.float32(math.sqrt(b2)) * root
                for d in range(width):
                    p = table[row, d]
                    m, v = mean[row, d], square[row, d]
                    p -= own_lr * m / (np.float32(math.sqrt(v)) * own_root + eps)
                    table[row, d] = p
                    bits = larger_bits(bits, p)
            else:
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
                if stored:
                    since[row] = count
            if copied:
                copy_scale[row] = float_of(bits)
        for row in range(first, stop):
            rests = slot[row] < 0 and (lazy or (stored and count - since[row] > _RESTS_AFTER))
            if copied and not rests:
                copy_scale[row] = write_bytes(table[row], copy_scale[row], copy[row])
            slot[row] = -1
