"""Adagrad on a GPU in one pass over a table and its gradient, as a Triton kernel."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _adagrad(table, square, gradient, rate, lr, size, CLEAR: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    g = tl.load(gradient + place, mask=inside, other=0.0)
    if tl.max(tl.abs(g), axis=0) == 0:  # most rows of a large table have no gradient
        return
    total = tl.load(square + place, mask=inside, other=0.0) + g * g
    x = tl.load(table + place, mask=inside, other=0.0)
    tl.store(square + place, total, mask=inside)
    tl.store(table + place, x - lr * tl.load(rate) * g / (tl.sqrt(total) + 1e-10), mask=inside)
    if CLEAR:
        tl.store(gradient + place, tl.zeros([BLOCK], tl.float32), mask=inside)


def adagrad_dense(
    table: Tensor,
    square: Tensor,
    gradient: Tensor,
    rate: Tensor,
    lr: float,
    weight_decay: float,
    clear: bool,
) -> None:
    """Move all rows of a table in place; the rate is a factor of the learning rate.

    With ``clear`` the gradient becomes zero in the same pass.
    """
    if weight_decay:
        if clear:
            given, gradient = gradient, gradient.clone()
            given.zero_()
        gradient = gradient + weight_decay * table * (gradient != 0).any(1, keepdim=True)
    if table.numel():
        _adagrad[(triton.cdiv(table.numel(), _BLOCK),)](
            table, square, gradient.contiguous(), rate, lr, table.numel(), clear, _BLOCK
        )
