"""A copy of a table with a byte a number, for scoring many candidates on a CPU.

Choosing which entities stay in a cache reads a hundred rows a triple and side: that is the largest
part of a step, and it waits for memory. A row of bytes with one scale is a quarter of the traffic.
Its scores are off by less than a hundredth of their spread, far below the noise that is added when
a row is renewed; losses, gradients and evaluation always read the table itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.kernels.availability import HAVE_NUMBA

#: The largest byte; the largest number of a row becomes this.
LARGEST = 127
#: Numbers below this count as zero: the scale of a row must not be.
TINY = 1e-30
#: Rows turned into bytes at once.
_BLOCK_ROWS = 4096


class CompactTable:
    """``values[i, j] * scale[i]`` is close to ``table[i, j]``."""

    def __init__(self, table: Tensor) -> None:
        self.values = torch.empty(table.shape, dtype=torch.int8, device=table.device)
        self.scale = torch.empty(len(table), device=table.device)
        self.refresh(table)

    def refresh(self, table: Tensor) -> None:
        """Copy the whole table; Adam on the CPU keeps the copy fresh in the pass that moves it."""
        if HAVE_NUMBA and table.device.type == "cpu":
            from nscaching.models.dot_kernels import write_rows

            write_rows(table.numpy(), self.values.numpy(), self.scale.numpy())
            return
        blocks = (torch.split(part, _BLOCK_ROWS) for part in (table, self.values, self.scale))
        for rows, values, scale in zip(*blocks, strict=True):
            largest = rows.abs().amax(1).clamp_min_(TINY)
            steps = largest.reciprocal().mul_(LARGEST).unsqueeze(1)
            values.copy_((rows * steps).round_())
            torch.mul(largest, 1 / LARGEST, out=scale)

    def rows(self, ids: Tensor) -> Tensor:
        """Return rows as floats. Shapes: (b,) -> (b, width)."""
        return self.values[ids] * self.scale[ids].unsqueeze(1)
