"""An int8 copy of a table, for scoring many candidates on a CPU.

Choosing which entities stay in a cache reads a hundred rows per triple and side: that is the
largest part of a step, and it waits for memory. A row of int8 values with one scale is a quarter of
the traffic. Its scores are off by less than a hundredth of their spread, far below the noise that
is added when a row is updated; losses, gradients and evaluation always read the table itself.
"""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor

from nscaching.kernels.constants import LARGEST, TINY
from nscaching.kernels.registry import kernel
from nscaching.models.match import Query, plain_forward
from nscaching.models.matches import Dot

#: Rows converted at once.
_BLOCK_ROWS = 4096


class Int8Table:
    """``values[i, j] * scale[i]`` is close to ``table[i, j]``."""

    def __init__(self, table: Tensor) -> None:
        self.values = torch.empty(table.shape, dtype=torch.int8, device=table.device)
        self.scale = torch.empty(len(table), device=table.device)
        self.refresh(table)

    def at(self, rows: slice) -> Int8Table:
        """Return the copy of some rows, which changes with this one."""
        part = copy(self)
        part.values, part.scale = self.values[rows], self.scale[rows]
        return part

    def refresh(self, table: Tensor) -> None:
        """Copy the whole table; optimisers on the CPU keep the copy fresh as they move rows."""
        int8_write(table, self.values, self.scale)

    def dot(self, query: Tensor, ids: Tensor) -> Tensor:
        """Multiply queries with rows; -1 is padding. Shapes: (b, q), (b, k) -> (b, k)."""
        return int8_dot_forward(query, self.values, self.scale, ids)


class HalfTable:
    """A bfloat16 copy of a table, for scoring many candidates on a GPU: half the traffic."""

    def __init__(self, table: Tensor) -> None:
        self.values = table.to(torch.bfloat16)

    def at(self, rows: slice) -> HalfTable:
        """Return the copy of some rows, which changes with this one."""
        part = copy(self)
        part.values = self.values[rows]
        return part

    def refresh(self, table: Tensor) -> None:
        """Copy the whole table; Adam on a GPU keeps the copy fresh as it moves rows."""
        self.values.copy_(table)


@kernel(cpu="int8_cpu")
def int8_write(table: Tensor, values: Tensor, scale: Tensor) -> None:
    """Write the int8 copy of a table. Shapes: (n, width) twice, (n,)."""
    blocks = (torch.split(part, _BLOCK_ROWS) for part in (table, values, scale))
    for rows, written, scales in zip(*blocks, strict=True):
        largest = rows.abs().amax(1).clamp_min_(TINY)
        steps = largest.reciprocal().mul_(LARGEST).unsqueeze(1)
        written.copy_((rows * steps).round_())
        torch.mul(largest, 1 / LARGEST, out=scales)


@kernel(cpu="int8_cpu")
def int8_dot_forward(query: Tensor, values: Tensor, scale: Tensor, ids: Tensor) -> Tensor:
    """Score candidates from an int8 copy. Shapes: (b, q), (n, q), (n,), (b, k) -> (b, k)."""
    known = ids.clamp_min(0)
    places = torch.arange(known.numel(), device=ids.device).view(ids.shape)
    rows = values[known].flatten(0, 1) * scale[known].view(-1, 1)
    return plain_forward(Dot(), Query(query), rows, places.masked_fill(ids < 0, -1))
