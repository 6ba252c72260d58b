"""Dense Adam on a GPU from gradients of the few rows that have one, as Triton kernels.

``accumulate`` adds row gradients into a table that is zero elsewhere and stamps the rows it touched
with the number of the step; ``adam`` moves every row, reads a gradient only where the stamp is
fresh, and leaves zeros behind. No pass is made over a dense gradient.

``catch_up`` moves some rows alone, by all the steps that they have waited for: those that have a
gradient, those that a step is going to read, and in turn all others, a part of them in each step.
A row is then passed over once for many steps, with the same operations as in each of them.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nscaching.kernels.constants import KEPT_STEPS
from nscaching.kernels.match_gpu import warps_for

#: Elements a program takes with four warps, 16 bytes a thread. (Fewer programs that go on to other
#: blocks, to leave room for the kernels of other runs, took twice as long on an H200.)
_BLOCK = 512
_KEPT = tl.constexpr(KEPT_STEPS)


@triton.jit
def _accumulate(gradient, stamp, count, ids, rows, width, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(ids + i).to(tl.int64)
    value = tl.load(rows + i * width + d, mask=d < width, other=0.0)
    tl.atomic_add(gradient + row * width + d, value, mask=d < width, sem="relaxed")
    if tl.program_id(1) == 0:
        tl.store(stamp + row, tl.load(count).to(tl.int32))


@triton.jit
def _begin(count, scalars, lr, lr_scale, log_beta1: tl.constexpr, log_beta2: tl.constexpr):
    step = tl.load(count) + 1.0
    exact = step.to(tl.float64)
    tl.store(count, step)
    rate = lr * tl.load(lr_scale)
    own = scalars + 2 * (step.to(tl.int64) % _KEPT)
    tl.store(own, (rate / (1.0 - tl.exp(exact * log_beta1))).to(tl.float32))
    tl.store(own + 1, (1.0 / tl.sqrt(1.0 - tl.exp(exact * log_beta2))).to(tl.float32))


@triton.jit
def _adam(
    table,
    copy,
    mean,
    square,
    gradient,
    stamp,
    count,
    scalars,
    size,
    beta1: tl.constexpr,
    beta2: tl.constexpr,
    epsilon,
    decay,
    width: tl.constexpr,
    LAZY: tl.constexpr,
    COPIED: tl.constexpr,
    LARGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    block = tl.program_id(0)
    if LARGE:
        block = block.to(tl.int64)
    place = block * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    step = tl.load(count)
    own = scalars + 2 * (step.to(tl.int64) % _KEPT)
    step_size = tl.load(own)
    root = tl.load(own + 1)
    hot = inside & (tl.load(stamp + place // width, mask=inside, other=-1) == step.to(tl.int32))
    if LAZY:
        inside = hot
    p = tl.load(table + place, mask=inside, other=0.0)
    g = tl.load(gradient + place, mask=hot, other=0.0) + decay * p
    m = beta1 * tl.load(mean + place, mask=inside, other=0.0) + (1.0 - beta1) * g
    v = beta2 * tl.load(square + place, mask=inside, other=0.0) + (1.0 - beta2) * g * g
    tl.store(gradient + place, tl.zeros([BLOCK], tl.float32), mask=hot)
    tl.store(mean + place, m, mask=inside)
    tl.store(square + place, v, mask=inside)
    p -= step_size * m / (tl.sqrt(v) * root + epsilon)
    tl.store(table + place, p, mask=inside)
    if COPIED:
        tl.store(copy + place, p.to(tl.bfloat16), mask=inside)


@triton.jit
def _catch_up(
    table, copy, mean, square, gradient, stamp, moved, ids, count, scalars,
    listed, rows, period, epsilon, decay,
    beta1: tl.constexpr, beta2: tl.constexpr, width: tl.constexpr,
    COPIED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Take all the steps up to the present one that a row has not taken.

    The first programs have the listed rows, the others those whose turn it is. Whoever comes first
    to a row moves it.
    """
    i = tl.program_id(0)
    step = tl.load(count).to(tl.int32)
    if i < listed:
        row = tl.load(ids + i).to(tl.int64)
    else:
        row = tl.cast(i - listed, tl.int64) * period + step % period
    if (row < 0) | (row >= rows):
        return
    before = tl.atomic_xchg(moved + row, step, sem="relaxed")
    if before >= step:
        return
    d = tl.arange(0, BLOCK)
    there = d < width
    place = row * width + d
    p = tl.load(table + place, mask=there, other=0.0)
    m = tl.load(mean + place, mask=there, other=0.0)
    v = tl.load(square + place, mask=there, other=0.0)
    hot = there & (tl.load(stamp + row) == step)
    of_step = tl.load(gradient + place, mask=hot, other=0.0)
    tl.store(gradient + place, tl.zeros([BLOCK], tl.float32), mask=hot)
    taken = before + 1
    while taken <= step:
        g = tl.where(taken == step, of_step, 0.0) + decay * p
        m = beta1 * m + (1.0 - beta1) * g
        v = beta2 * v + (1.0 - beta2) * g * g
        own = scalars + 2 * (taken % _KEPT)
        p -= tl.load(own) * m / (tl.sqrt(v) * tl.load(own + 1) + epsilon)
        taken += 1
    tl.store(mean + place, m, mask=there)
    tl.store(square + place, v, mask=there)
    tl.store(table + place, p, mask=there)
    if COPIED:
        tl.store(copy + place, p.to(tl.bfloat16), mask=there)


def accumulate(gradient: Tensor, stamp: Tensor, count: Tensor, ids: Tensor, rows: Tensor) -> None:
    """Add rows into the gradient at ids, which may repeat, and stamp them with the step."""
    width = gradient.shape[1]
    block = min(_BLOCK, triton.next_power_of_2(width))
    _accumulate[(len(ids), triton.cdiv(width, block))](
        gradient, stamp, count, ids.contiguous(), rows.contiguous(), width, block
    )


def begin(
    count: Tensor, scalars: Tensor, lr: float, lr_scale: Tensor, log_betas: tuple[float, float]
) -> None:
    """Count a step and work out its two scalars: the step size and the second correction."""
    _begin[(1,)](count, scalars, lr, lr_scale, *log_betas, num_warps=1)


def adam(
    table: Tensor,
    copy: Tensor | None,
    mean: Tensor,
    square: Tensor,
    gradient: Tensor,
    stamp: Tensor,
    count: Tensor,
    scalars: Tensor,
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
    lazy: bool,
) -> None:
    """Move every row of a table, or those with a gradient where ``lazy``, by one step.

    A bfloat16 ``copy`` of the table follows, if there is one.
    """
    size = table.numel()
    _adam[(triton.cdiv(size, _BLOCK),)](
        table,
        table if copy is None else copy,
        mean,
        square,
        gradient,
        stamp,
        count,
        scalars,
        size,
        *betas,
        epsilon,
        decay,
        table.shape[1],
        lazy,
        copy is not None,
        size + _BLOCK >= 1 << 31,
        _BLOCK,
    )


def catch_up(
    table: Tensor,
    copy: Tensor | None,
    moments: tuple[Tensor, Tensor],
    gradient: tuple[Tensor, Tensor],
    moved: Tensor,
    ids: Tensor,
    period: int,
    clock: tuple[Tensor, Tensor],
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
) -> None:
    """Bring listed rows to the present step, and of all rows one in ``period``; 0 is none of them.

    ``moved`` (n,) has the last step of each row. Ids may repeat, and -1 is padding. ``gradient`` is
    the table and its stamps, ``clock`` the number of the step and the scalars of the last ones.
    """
    rows, width = table.shape
    due = triton.cdiv(rows, period) if period else 0
    block = triton.next_power_of_2(width)
    if len(ids) + due:
        _catch_up[(len(ids) + due,)](
            table, table if copy is None else copy, *moments, *gradient, moved, ids.contiguous(),
            *clock, len(ids), rows, max(period, 1), epsilon, decay, *betas, width,
            copy is not None, block, num_warps=warps_for(block),
        )  # fmt: skip
