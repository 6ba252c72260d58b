"""Dense Adam on a GPU from gradients of the few rows that have one, as Triton kernels.

``accumulate`` adds row gradients into a table that is zero elsewhere and stamps the rows it touched
with the number of the step; ``adam`` moves every row, reads a gradient only where the stamp is
fresh, and leaves zeros behind. No pass is made over a dense gradient.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

#: Elements a program takes with four warps, 16 bytes a thread.
_BLOCK = 512


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
    tl.store(scalars, (rate / (1.0 - tl.exp(exact * log_beta1))).to(tl.float32))
    tl.store(scalars + 1, (1.0 / tl.sqrt(1.0 - tl.exp(exact * log_beta2))).to(tl.float32))


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
    step_size = tl.load(scalars)
    root = tl.load(scalars + 1)
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
