"""Adagrad on a GPU in one pass over a table and its gradient, as a Triton kernel."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _adagrad(table, square, gradient, rate, lr, size, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    g = tl.load(gradient + place, mask=inside, other=0.0)
    total = tl.load(square + place, mask=inside, other=0.0) + g * g
    x = tl.load(table + place, mask=inside, other=0.0)
    tl.store(square + place, total, mask=inside)
    tl.store(table + place, x - lr * tl.load(rate) * g / (tl.sqrt(total) + 1e-10), mask=inside)


def adagrad_dense(
    table: Tensor, square: Tensor, gradient: Tensor, rate: Tensor, lr: float, weight_decay: float
) -> None:
    """Move all rows of a table in place; the rate is a factor of the learning rate."""
    if weight_decay:
        gradient = gradient + weight_decay * table * (gradient != 0).any(1, keepdim=True)
    if table.numel():
        _adagrad[(triton.cdiv(table.numel(), _BLOCK),)](
            table, square, gradient.contiguous(), rate, lr, table.numel(), _BLOCK
        )
