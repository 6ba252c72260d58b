"""Adagrad: every parameter has its own learning rate, which falls with its squared gradients.

A row without a gradient does not move, so dense and lazy updates are the same. L2 enters as coupled
weight decay on the rows that have a gradient.

A large table has no table of gradients beside it on a GPU: those of a step are sorted by row and
added up. Rows of bfloat16, and their sums of squares, are rounded at random: up or down with the
probability that makes the expectation exact, so that steps smaller than the last bit are not lost.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.kernels.constants import ADAGRAD_EPSILON
from nscaching.kernels.hashing import hashed_bits
from nscaching.kernels.registry import GPU, compiled_for, kernel
from nscaching.models import HalfTable, Int8Table
from nscaching.optim.base import Copy, Gradients, Optimizer, RowGradients, joined

#: Numbers of a table from which on a GPU keeps no gradients of its size.
LARGE = 1 << 30


class Adagrad(Optimizer):
    """Adagrad over named tables; its state goes into checkpoints."""

    name = "adagrad"

    def __init__(
        self,
        tables: dict[str, Tensor],
        lr: float,
        weight_decay: float = 0.0,
        copies: dict[str, Copy] | None = None,
    ) -> None:
        super().__init__(tables, lr, weight_decay, copies)
        self.square = {name: torch.zeros_like(table) for name, table in tables.items()}
        on_gpu = compiled_for(self.device) == GPU
        self._large = {
            name
            for name, table in tables.items()
            if table.dtype == torch.bfloat16 or (on_gpu and table.numel() >= LARGE)
        }
        self._rounds = any(table.dtype == torch.bfloat16 for table in tables.values())
        #: Steps taken, from which the noise of rounding is hashed.
        self.count = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._gradient: dict[str, Tensor] = {}
        if on_gpu:  # shapes must not depend on values in a CUDA graph
            small = (name for name in tables if name not in self._large)
            self._gradient = {name: torch.zeros_like(tables[name]) for name in small}

    def gradient_table(self, name: str) -> Tensor | None:
        """Return the table in which a GPU adds up gradients."""
        return self._gradient.get(name)

    def adds_rows_up(self, name: str) -> bool:
        """Tell whether gradients of rows are added up by the optimiser, without such a table."""
        return name in self._large

    def accumulate(self, gradients: Gradients) -> None:
        """Add up the gradients of rows where they are kept as a table."""
        for name, parts in gradients.items():
            whole = _whole(parts)
            gradient = self._gradient.get(name) if whole is None else whole
            if gradient is not None:
                for part in parts:
                    if part.ids is not None:
                        part.add_to(gradient)

    def apply(self, gradients: Gradients) -> None:
        """Move the rows that have a gradient."""
        rate = self.lr_scale if self._gradient else self.lr_factor
        if self._rounds:
            self.count += 1
        for name, parts in gradients.items():
            table, square, whole = self.tables[name], self.square[name], _whole(parts)
            gradient = self._gradient.get(name) if whole is None else whole
            copy = self.copies.get(name)
            if gradient is not None:
                clear = whole is None or whole is self._gradient.get(name)
                adagrad_dense(table, square, gradient, rate, self.lr, self.weight_decay, clear)
                if copy is not None:
                    copy.refresh(table)
                continue
            ids, rows = joined(parts, table)
            if name in self._large:
                moved = (table, square, ids, rows, self.count, self.lr_scale)
                adagrad_large(*moved, self.lr, self.weight_decay)
            else:  # it writes the rows of an int8 copy as well
                int8 = self.int8_copy(name)
                inputs = (table, square, ids, rows, int8.values, int8.scale)
                adagrad_rows(*inputs, self.lr * self.lr_factor, self.weight_decay)
            if isinstance(copy, HalfTable):
                copy.values[ids] = table[ids].to(torch.bfloat16)

    def state(self) -> dict[str, Tensor]:
        """Return the sums of squared gradients; where rows are rounded, also the steps taken."""
        sums = {f"{name}.square": table for name, table in self.square.items()}
        return {**sums, "count": self.count} if self._rounds else sums

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        for name, mine in self.state().items():
            mine.copy_(state[name])


def _whole(parts: list[RowGradients]) -> Tensor | None:
    """Return the part of a gradient that is of all rows, if there is one."""
    return next((part.rows for part in parts if part.ids is None), None)


@kernel(cpu="adagrad_cpu", gpu="adagrad_gpu")
def adagrad_dense(
    table: Tensor,
    square: Tensor,
    gradient: Tensor,
    rate: Tensor | float,
    lr: float,
    weight_decay: float,
    clear: bool,
) -> None:
    """Move all rows of a table in place; the rate is a factor of the learning rate.

    With ``clear`` the gradient becomes zero afterwards.
    """
    given = gradient
    if weight_decay:
        has_one = (gradient != 0).any(1, keepdim=True)
        gradient = gradient + weight_decay * table * has_one
    square.addcmul_(gradient, gradient)
    table.sub_(lr * rate * gradient / (square.sqrt() + ADAGRAD_EPSILON))
    if clear:
        given.zero_()


@kernel(cpu="adagrad_cpu")
def adagrad_rows(
    table: Tensor,
    square: Tensor,
    ids: Tensor,
    rows: Tensor,
    values: Tensor,
    scale: Tensor,
    lr: float,
    weight_decay: float,
) -> None:
    """Move rows of a table in place; ids may repeat, and an int8 copy follows if there is one."""
    touched, place = torch.unique(ids, return_inverse=True)
    gradient = rows.new_zeros(len(touched), rows.shape[1]).index_add_(0, place, rows)
    gradient += weight_decay * table[touched] * (gradient != 0).any(1, keepdim=True)
    summed = square[touched] + gradient**2
    square[touched] = summed
    table[touched] -= lr * gradient / (summed.sqrt() + ADAGRAD_EPSILON)
    if len(values):
        copy = Int8Table(table[touched])
        values[touched], scale[touched] = copy.values, copy.scale


@kernel(gpu="adagrad_gpu")
def adagrad_large(
    table: Tensor,
    square: Tensor,
    ids: Tensor,
    rows: Tensor,
    count: Tensor,
    rate: Tensor,
    lr: float,
    weight_decay: float,
) -> None:
    """Move rows of a table in place; ids may repeat. The rate is a factor of the learning rate.

    Bfloat16 tables are rounded at random, by noise hashed from the count, the row and the place.
    """
    touched, place = torch.unique(ids, return_inverse=True)
    gradient = rows.new_zeros(len(touched), rows.shape[1]).index_add_(0, place, rows)
    before, summed = (part[touched].to(rows.dtype) for part in (table, square))
    gradient += weight_decay * before * (gradient != 0).any(1, keepdim=True)
    summed += gradient**2
    moved = before - lr * rate * gradient / (summed.sqrt() + ADAGRAD_EPSILON)
    bits = hashed_bits(count, touched, 0, rows.shape[1])
    table[touched] = rounded_at_random(moved, table.dtype, bits)
    square[touched] = rounded_at_random(summed, square.dtype, bits >> 16)


def rounded_at_random(values: Tensor, dtype: torch.dtype, bits: Tensor) -> Tensor:
    """Round float32 to bfloat16 by the lowest 16 of some random bits; other types are as they are.

    What is cut off, as a share of the last bit that is kept, is the probability of rounding up.
    """
    if dtype != torch.bfloat16:
        return values
    noise = (bits & 0xFFFF).to(torch.int32)
    return ((values.view(torch.int32) + noise) & -0x10000).view(torch.float32).to(dtype)
