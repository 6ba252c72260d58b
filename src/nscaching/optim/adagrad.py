"""Adagrad: every parameter has its own learning rate, which falls with its squared gradients.

A row without a gradient does not move, so dense and lazy updates are the same. L2 enters as coupled
weight decay on the rows that have a gradient.

A large table has no table of gradients beside it on a GPU: those of a step are sorted by row and
added up, so that only rows with a gradient are read and written. The same is done with gradients
that are products. Rows of bfloat16, and their sums of squares, are rounded at random: up or down
with the probability that makes the expectation exact, so that steps smaller than the last bit are
not lost.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.kernels.constants import ADAGRAD_EPSILON
from nscaching.kernels.hashing import hashed_bits
from nscaching.kernels.registry import GPU, compiled_for, kernel
from nscaching.models import HalfTable, Int8Table
from nscaching.optim.base import (
    Copy,
    Gradients,
    Optimizer,
    RowGradients,
    joined,
    joined_products,
)

#: Numbers of a table from which on a GPU keeps no gradients of its size.
LARGE = 1 << 30
#: Numbers of a table from which on a GPU adds products up row by row; sorting costs more below.
SORTED = 1 << 22


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
        self._on_gpu = compiled_for(self.device) == GPU
        self._large = {
            name
            for name, table in tables.items()
            if table.dtype == torch.bfloat16 or (self._on_gpu and table.numel() >= LARGE)
        }
        self._rounds = any(table.dtype == torch.bfloat16 for table in tables.values())
        #: Steps taken, from which the noise of rounding is hashed.
        self.count = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._gradient: dict[str, Tensor] = {}

    def gradient_table(self, name: str) -> Tensor | None:
        """Return the table in which a GPU adds up gradients; it is made when it is asked for."""
        if not self._on_gpu or name in self._large:
            return None
        if name not in self._gradient:
            self._gradient[name] = torch.zeros_like(self.tables[name])
        return self._gradient[name]

    def takes_products(self, name: str, few: bool) -> bool:
        """Tell whether gradients of a table need not be written out: they may have slopes."""
        size = self.tables[name].numel()
        return self._on_gpu and (name in self._large or size >= SORTED)

    def adds_rows_up(self, name: str) -> bool:
        """Tell whether gradients of rows are added up by the optimiser, without such a table."""
        return name in self._large

    def accumulate(self, gradients: Gradients) -> None:
        """Add up the gradients of rows where they are kept as a table."""
        for name, parts in gradients.items():
            gradient = self._table_for(name, parts)
            if gradient is not None:
                for part in parts:
                    if part.ids is not None:
                        part.add_to(gradient)

    def apply(self, gradients: Gradients) -> None:
        """Move the rows that have a gradient."""
        rate = self.lr_scale if self._on_gpu else self.lr_factor
        if self._rounds:
            self.count += 1
        for name, parts in gradients.items():
            table, square = self.tables[name], self.square[name]
            gradient, copy = self._table_for(name, parts), self.copies.get(name)
            if gradient is not None:
                clear = gradient is self._gradient.get(name)
                adagrad_dense(table, square, gradient, rate, self.lr, self.weight_decay, clear)
                if copy is not None:
                    copy.refresh(table)
                continue
            if self._on_gpu or name in self._large:
                ids, rows, products = _by_rows(parts, table)
                scalars = (self.count, self.lr_scale, self.lr, self.weight_decay)
                adagrad_large(table, square, ids, rows, products, *scalars)
            else:  # it writes the rows of an int8 copy as well
                ids, rows = joined(parts, table)
                int8 = self.int8_copy(name)
                inputs = (table, square, ids, rows, int8.values, int8.scale)
                adagrad_rows(*inputs, self.lr * self.lr_factor, self.weight_decay)
            if isinstance(copy, HalfTable):
                ids = ids.clamp_min(0)  # padding copies a row that is there
                copy.values[ids] = table[ids].to(torch.bfloat16)

    def _table_for(self, name: str, parts: list[RowGradients]) -> Tensor | None:
        """Return where a gradient is added up as a table; None where it is, row by row."""
        for part in parts:
            if part.ids is None:
                return part.rows
        products = any(part.slopes is not None for part in parts)
        return None if products else self.gradient_table(name)

    def state(self) -> dict[str, Tensor]:
        """Return the sums of squared gradients; where rows are rounded, also the steps taken."""
        sums = {f"{name}.square": table for name, table in self.square.items()}
        return {**sums, "count": self.count} if self._rounds else sums

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        for name, mine in self.state().items():
            mine.copy_(state[name])


#: Slopes (q, k), vectors (v, width), and which of them each question has (q,); all by default.
Products = tuple[Tensor, Tensor, Tensor | None]


def _by_rows(parts: list[RowGradients], table: Tensor) -> tuple[Tensor, Tensor, Products | None]:
    """Return the ids of gradients, those that are written out, and those that are products.

    Shapes: (m + q k,), (m, width).
    """
    written = [part for part in parts if part.slopes is None]
    ids = [part.ids_in(table) for part in written]
    none = table.new_empty(0, table.shape[1], dtype=torch.float32)
    rows = torch.cat([none, *(part.rows for part in written)])
    if len(written) == len(parts):
        return torch.cat(ids), rows, None
    given = joined_products([part for part in parts if part.slopes is not None])
    assert given.slopes is not None
    return torch.cat([*ids, given.ids_in(table)]), rows, (given.slopes, given.rows, given.places)


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
    products: Products | None,
    count: Tensor,
    rate: Tensor,
    lr: float,
    weight_decay: float,
) -> None:
    """Move rows of a table in place; ids may repeat. The rate is a factor of the learning rate.

    The last ids are those of products, -1 is padding among them. Bfloat16 tables are rounded at
    random, by noise hashed from the count, the row and the place.
    """
    if products is not None:
        slopes, vectors, places = products
        given = RowGradients(ids[len(rows) :], vectors, slopes, places).written_out()
        ids, rows = (
            torch.cat([ids[: len(rows)], given.ids_in(table)]),
            torch.cat([rows, given.rows]),
        )
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
