"""Dense Adam on the CPU in one pass, from gradients of the few rows that have one.

What a step does to a row without a gradient depends on nothing but that row. So it may be done
later, several steps at once while the row is in the nearest memory: ``advance`` brings a row from
the step it has reached to the present one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from nscaching.llvm import LINE_BYTES, prefetch
from nscaching.scoring.dot_kernels import write_row

Array = np.ndarray[Any, Any]
#: Listed rows that are on their way from memory while another one is moved.
_AHEAD = 2


@njit(cache=True, nogil=True, error_model="numpy")
def list_rows(ids: Array, gradient: Array, slot: Array, rows: Array) -> int:
    """List each id once, note its first place in ``slot`` and add up its gradients there.

    Returns how many there are. Shapes: ids, rows (m,); gradient (m, width), or (0, width) for
    none; slot (n,), -1 before.
    """
    count = 0
    for i in range(ids.shape[0]):
        row = ids[i]
        first = slot[row]
        if first < 0:
            slot[row] = i
            rows[count] = row
            count += 1
        else:
            for d in range(gradient.shape[1] if gradient.shape[0] > 0 else 0):
                gradient[first, d] += gradient[i, d]
    return count


@njit(fastmath=True, cache=True, nogil=True, error_model="numpy")
def _move(
    p: Array, mean: Array, square: Array, gradient: Array, constants: Any, size: Any, root: Any
) -> None:
    """Move a row by one step; ``gradient`` is (0,) where there is none but the decay."""
    b1, c1, b2, c2, eps, wd = constants
    if gradient.shape[0] > 0:
        for d in range(p.shape[0]):
            g = wd * p[d] + gradient[d]
            m = b1 * mean[d] + c1 * g
            v = b2 * square[d] + c2 * g * g
            mean[d] = m
            square[d] = v
            p[d] -= size * m / (np.float32(math.sqrt(v)) * root + eps)
    else:
        for d in range(p.shape[0]):
            g = wd * p[d]
            m = b1 * mean[d] + c1 * g
            v = b2 * square[d] + c2 * g * g
            mean[d] = m
            square[d] = v
            p[d] -= size * m / (np.float32(math.sqrt(v)) * root + eps)


@njit(parallel=True, fastmath=True, cache=True, nogil=True, error_model="numpy")
def advance(
    table: Array,
    mean: Array,
    square: Array,
    reached: Array,
    rows: Array,
    first: int,
    stop: int,
    slot: Array,
    gradient: Array,
    copy: Array,
    copy_scale: Array,
    count: int,
    sizes: Array,
    roots: Array,
    betas: Any,
    epsilon: float,
    decay: float,
    lazy: bool,
    parts: int,
) -> None:
    """Bring the listed rows and those from ``first`` to ``stop`` to step ``count``.

    ``slot`` says which row of ``gradient`` a listed row has in that step, and becomes -1 again;
    ``gradient`` is (0, width) where they have none. ``reached`` is the step a row is at; ``lazy``
    Adam leaves out the steps between. Step t has the step size lr / (1 - beta1^t) in ``sizes`` and
    1 / sqrt(1 - beta2^t) in ``roots``, at t modulo their length. ``copy`` and ``copy_scale`` are
    those of a :class:`~nscaching.scoring.compact.CompactTable`, or empty. ``parts`` is the number
    of threads.

    Shapes: table, mean, square, copy (n, width); reached, slot, copy_scale (n,); rows (u,).
    """
    width = table.shape[1]
    beta1, beta2 = betas
    constants = (
        np.float32(beta1),
        np.float32(1 - beta1),
        np.float32(beta2),
        np.float32(1 - beta2),
        np.float32(epsilon),
        np.float32(decay),
    )
    listed, others = rows.shape[0], stop - first
    for part in prange(parts):
        i, last_listed = part * listed // parts, (part + 1) * listed // parts
        other, last_other = first + part * others // parts, first + (part + 1) * others // parts
        while i < last_listed or other < last_other:
            has_gradient = False
            if i < last_listed:
                row = rows[i]
                has_gradient = gradient.shape[0] > 0
                i += 1
                later = rows[min(i + _AHEAD, last_listed) - 1]
                for byte in range(0, width * table.itemsize, LINE_BYTES):
                    prefetch(table, later, byte)
                    prefetch(mean, later, byte)
                    prefetch(square, later, byte)
            else:
                row = other
                other += 1
                if slot[row] >= 0:
                    continue  # a listed one
            behind = 1 if lazy else count - reached[row]
            reached[row] = count
            for step in range(count - behind + 1, count + 1):
                own = gradient[slot[row]] if has_gradient and step == count else gradient[0, :0]
                _move(
                    table[row], mean[row], square[row], own, constants,
                    sizes[step % sizes.shape[0]], roots[step % roots.shape[0]],
                )  # fmt: skip
            if copy.shape[0] > 0:
                write_row(table[row], copy[row], copy_scale[row : row + 1])
    for i in range(listed):
        slot[rows[i]] = -1
