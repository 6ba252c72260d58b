"""The batch of a step, gathered on a GPU at the place the device has reached."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _gather_batch(
    order, start, columns, batch, count, size, COLUMNS: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    index = tl.load(order + tl.load(start) + i, mask=inside, other=0)
    tl.store(batch + i, index, mask=inside)
    for column in tl.static_range(COLUMNS):
        value = tl.load(columns + column * tl.cast(count, tl.int64) + index, mask=inside, other=0)
        tl.store(batch + (column + 1) * size + i, value, mask=inside)


def gather_batch(order: Tensor, start: Tensor, columns: Tensor, size: int) -> Tensor:
    """Return triples ``order[start : start + size]`` and their columns. Shape: (1 + c, size)."""
    batch = torch.empty(1 + len(columns), size, dtype=torch.int64, device=columns.device)
    _gather_batch[(triton.cdiv(size, 128),)](
        order, start, columns, batch, columns.shape[1], size, len(columns), 128
    )
    return batch
