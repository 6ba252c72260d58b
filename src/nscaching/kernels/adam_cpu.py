"""Dense Adam on the CPU, from gradients of the few rows that have one.

A row without a gradient moves all the same, but how is known in advance. So updates of such rows
are deferred: a block of rows every few steps catches up with all the steps since its last update,
and memory is passed over a fraction as often. A row that is about to be read catches up before.

Without weight decay the moments of a row without a gradient only shrink, by the same factors for
all its numbers. They are left as they were at the row's last gradient and are not written either;
and the steps a row waited in differ so little that two do for all of them (``_two_for_many``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from nscaching.kernels.constants import MOST_DEFERRED
from nscaching.kernels.int8_cpu import TINY_BITS, larger_bits, write_row
from nscaching.kernels.numba_tools import Array, exact_inline, fetch_row, float_of, inside, parallel
from nscaching.kernels.row_sums_cpu import fetch_place, places_of, sum_chain

#: Rows that catch up together.
BLOCK_ROWS = 16
#: After so many steps without a gradient a row rests: what is left of its mean, 0.9^400, is 5e-19.
RESTS_AFTER = 400
#: The first steps differ much from one another; until this one each is taken.
_EARLY = 100
#: Parts that the rows of a call are dealt out in.
_PARTS = 32
#: Listed rows that are on their way from memory while others are moved.
_AHEAD = 2


@exact_inline
def _recent_steps(count: int, lr: float, beta1: float, beta2: float) -> Any:
    """Return sizes of steps, and what roots of squares are corrected by, from step count back."""
    sizes, roots = np.zeros(MOST_DEFERRED + 1), np.zeros(MOST_DEFERRED + 1)
    for back in range(min(MOST_DEFERRED + 1, count)):
        sizes[back] = lr / (1 - beta1 ** (count - back))
        roots[back] = 1 / math.sqrt(1 - beta2 ** (count - back))
    return sizes, roots


@exact_inline
def _two_for_many(sizes: Array, roots: Array, beta1: float, beta2: float) -> Array:
    """Return how a row makes up for 1, 2, ... steps at once, up to the present one.

    A step divides by the root of the square times a factor that creeps from step to step. The sum
    over the steps is a quadrature: two points with the first three moments of the factors, each
    weighted with its step, have the same sum but for the fourth power of the creeping.

    Shapes: sizes, roots (MOST_DEFERRED + 1,), of steps back from the present one; the result
    (MOST_DEFERRED + 1, 4) has two sizes and two factors, for moments as of where the row stood.
    """
    plan = np.zeros((MOST_DEFERRED + 1, 4))
    root_of_beta2 = math.sqrt(beta2)
    weights, factors = np.empty(plan.shape[0]), np.empty(plan.shape[0])
    for steps in range(1, plan.shape[0]):
        total = mean = 0.0
        left1 = left2 = 1.0
        for i in range(1, steps + 1):
            left1 *= beta1
            left2 *= root_of_beta2
            weights[i] = sizes[steps - i] * left1
            factors[i] = roots[steps - i] * left2
            total += weights[i]
            mean += weights[i] * factors[i]
        mean /= total
        second = third = 0.0
        for i in range(1, steps + 1):
            off = factors[i] - mean
            second += weights[i] / total * off * off
            third += weights[i] / total * off * off * off
        plan[steps, 0], plan[steps, 1], plan[steps, 2], plan[steps, 3] = total, 0.0, mean, mean
        if steps > 1:
            lean = third / second
            spread = math.sqrt(lean**2 + 4 * second)
            low, high = mean + (lean - spread) / 2, mean + (lean + spread) / 2
            share = (high - mean) / (high - low)
            plan[steps, 0], plan[steps, 1] = total * share, total * (1 - share)
            plan[steps, 2], plan[steps, 3] = low, high
    return plan


@inside
def _rates(beta1: float, beta2: float, epsilon: float, decay: float) -> Any:
    """Return the shares of moments and gradients, epsilon and the decay, as the rows have them."""
    one, two = np.float32(beta1), np.float32(beta2)
    new1, new2 = np.float32(1 - beta1), np.float32(1 - beta2)
    return one, two, new1, new2, np.float32(epsilon), np.float32(decay)


@inside
def _decay(
    table: Array, mean: Array, square: Array, row: int, size: Any, root: Any, rates: Any
) -> None:
    """Take a step whose only gradient is the weight decay."""
    kept1, kept2, new1, new2, eps, decay = rates
    for d in range(table.shape[1]):
        g = decay * table[row, d]
        m = kept1 * mean[row, d] + new1 * g
        v = kept2 * square[row, d] + new2 * g * g
        mean[row, d] = m
        square[row, d] = v
        table[row, d] -= size * m / (np.float32(math.sqrt(v)) * root + eps)


@inside
def _fade(
    table: Array, mean: Array, square: Array, row: int, size: Any, root: Any, eps: Any
) -> None:
    """Take a step without a gradient; ``size`` and ``root`` have what is left of the moments."""
    for d in range(table.shape[1]):
        m, v = mean[row, d], square[row, d]
        table[row, d] -= size * m / (np.float32(math.sqrt(v)) * root + eps)


@inside
def _fade_at_once(
    table: Array, mean: Array, square: Array, row: int, plan: Any, left: Any, eps: Any
) -> None:
    """Take several steps without a gradient as two; ``left`` is what is left of the moments."""
    size1, size2 = np.float32(plan[0] * left[0]), np.float32(plan[1] * left[0])
    root1, root2 = np.float32(plan[2] * left[1]), np.float32(plan[3] * left[1])
    for d in range(table.shape[1]):
        m, v = mean[row, d], np.float32(math.sqrt(square[row, d]))
        table[row, d] -= m * (size1 / (v * root1 + eps) + size2 / (v * root2 + eps))


@inside
def _follow(
    table: Array,
    mean: Array,
    square: Array,
    row: int,
    gradient: Array,
    left: Any,
    step: Any,
    rates: Any,
) -> None:
    """Take a step along a gradient (width,); of the moments ``left`` is left."""
    _, _, new1, new2, eps, decay = rates
    left1, left2 = left
    size, root = step
    for d in range(table.shape[1]):
        g = decay * table[row, d] + gradient[d]
        m = left1 * mean[row, d] + new1 * g
        v = left2 * square[row, d] + new2 * g * g
        mean[row, d] = m
        square[row, d] = v
        table[row, d] -= size * m / (np.float32(math.sqrt(v)) * root + eps)


@inside
def write_copy(table: Array, row: int, copy: Array, copy_scale: Array) -> None:
    """Bring the int8 copy of a row up to date."""
    bits = TINY_BITS
    for d in range(table.shape[1]):
        bits = larger_bits(bits, table[row, d])
    copy_scale[row] = write_row(table[row], float_of(bits), copy[row])


@inside
def _catch_up_row(
    table: Array, mean: Array, square: Array, since: Array, moved: Array, row: int, last: int,
    count: int, exactly: bool, recent: Any, fading: Array, rates: Any,
) -> None:  # fmt: skip
    """Take the steps of a row up to step ``last`` in which it has no gradient.

    ``recent`` are those of :func:`_recent_steps` and :func:`_two_for_many`; ``exactly`` takes them
    one by one.
    """
    sizes, roots, plan = recent
    eps, decay = rates[4], rates[5]
    if decay > 0:
        for step in range(moved[row] + 1, last + 1):
            size, root = np.float32(sizes[count - step]), np.float32(roots[count - step])
            _decay(table, mean, square, row, size, root, rates)
        since[row] = last
    elif exactly or last - moved[row] == 1:
        for step in range(moved[row] + 1, last + 1):
            age = min(step - since[row], RESTS_AFTER)
            size = np.float32(sizes[count - step] * fading[0, age])
            root = np.float32(roots[count - step] * fading[1, age])
            _fade(table, mean, square, row, size, root, eps)
    else:
        age = moved[row] - since[row]
        left = fading[0, age], fading[1, age]
        _fade_at_once(table, mean, square, row, plan[last - moved[row]], left, eps)


@parallel
def move(
    table: Array, mean: Array, square: Array, since: Array, moved: Array, slot: Array, rows: Array,
    following: Array, gradient: Any, copy: Array, copy_scale: Array, fading: Array, count: int,
    phase: int, period: int, lr: float, beta1: float, beta2: float, epsilon: float, decay: float,
    lazy: bool,
) -> None:  # fmt: skip
    """Move the listed ``rows``, and the blocks of rows that are due, to step ``count``.

    Block b is due if b % period == phase; none is if ``period`` is 0. ``slot`` is the first place
    of the ``gradient`` that belongs to a listed row, ``following`` has the others, and ``slot``
    becomes -1. Without gradients the listed rows catch up, before those gradients are taken; their
    copies are left for the step itself. ``moved`` is the step a row has been moved to, at most
    MOST_DEFERRED back, and ``since`` the step as of which its moments are stored. ``copy`` and
    ``copy_scale`` are those of a :class:`~nscaching.models.Int8Table`, or empty. ``fading`` has
    what is left of the mean, and of the root of the square, after so many steps. If ``lazy``, steps
    without a gradient do not count.

    Shapes: table, mean, square, copy (n, width); since, moved, slot, copy_scale (n,); rows (u,);
    gradient: :mod:`nscaching.kernels.row_sums_cpu`; fading (2, RESTS_AFTER + 1).
    """
    rates = _rates(beta1, beta2, epsilon, decay)
    log1, log2 = math.log(beta1), math.log(beta2)
    sizes, roots = _recent_steps(count, lr, beta1, beta2)
    recent = sizes, roots, _two_for_many(sizes, roots, beta1, beta2)
    blocks = (table.shape[0] + BLOCK_ROWS - 1) // BLOCK_ROWS
    due = (blocks - phase + period - 1) // period if period > 0 else 0
    listed = rows.shape[0]
    with_gradient = places_of(gradient) > 0
    for number in prange(_PARTS):
        part: Any = np.int64(number)  # prange counts unsigned, and unsigned plus signed is a float
        # Rows with long chains are listed together: each part takes some of them.
        own_rows = (listed - part + _PARTS - 1) // _PARTS
        due_start = part * due // _PARTS
        due_rows = ((part + 1) * due // _PARTS - due_start) * BLOCK_ROWS
        total = np.empty(table.shape[1], dtype=np.float32)
        for i in range(own_rows + due_rows):
            is_due = i >= own_rows
            if is_due:
                place = i - own_rows
                block = (due_start + place // BLOCK_ROWS) * period + phase
                row: Any = np.int64(block * BLOCK_ROWS + place % BLOCK_ROWS)
                if row >= table.shape[0]:
                    continue
            else:
                row = np.int64(rows[part + i * _PARTS])
                if period > 0 and row // BLOCK_ROWS % period == phase:
                    continue
                later = rows[part + min(i + _AHEAD, own_rows - 1) * _PARTS]
                fetch_row(table, later)
                fetch_row(mean, later)
                fetch_row(square, later)
                if with_gradient:
                    fetch_place(gradient, slot[later])
            own = slot[row] if with_gradient else -1
            last = count - 1 if own >= 0 else count
            rests = lazy or (decay == 0 and moved[row] - since[row] > RESTS_AFTER)
            waited = 0 if rests else last - moved[row]
            if waited > 0:
                exactly = count < _EARLY or own >= 0
                _catch_up_row(
                    table, mean, square, since, moved, row, last, count, exactly, recent, fading,
                    rates,
                )  # fmt: skip
            if own >= 0:
                steps = 1 if lazy else count - since[row]
                shares = np.float32(math.exp(steps * log1)), np.float32(math.exp(steps * log2))
                now = np.float32(sizes[0]), np.float32(roots[0])
                sum_chain(gradient, following, own, total)
                _follow(table, mean, square, row, total, shares, now, rates)
                since[row] = count
            moved[row] = count
            if copy.shape[0] > 0 and (own >= 0 or (is_due and waited > 0)):
                write_copy(table, row, copy, copy_scale)
    for i in range(listed):
        slot[rows[i]] = -1
