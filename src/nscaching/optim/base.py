"""The contract of an optimiser: named tables, gradients of some of their rows, a step.

A step has two halves, so that what runs beside the first can meet before the tables move.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from nscaching.models import HalfTable, Int8Table

_BLOCK_ROWS = 1 << 15
#: A copy of a table from which candidates are scored.
Copy = Int8Table | HalfTable
#: Schedules of the learning rate: its factor by the share of all steps that are done.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 + 0.5 * math.cos(math.pi * done),
}


class RowGradients(NamedTuple):
    """The gradient of some rows of a table, or of all of them."""

    ids: Tensor | None  #: (m,), may repeat, their gradients add up; None: all rows, in order
    rows: Tensor  #: (m, width)

    def ids_in(self, table: Tensor) -> Tensor:
        """Return the ids, also where the gradient is of all rows."""
        if self.ids is not None:
            return self.ids
        return torch.arange(len(table), device=table.device)

    def add_to(self, table: Tensor) -> None:
        """Add the gradient to a table of zeros, in place."""
        if self.ids is None:
            table.add_(self.rows)
        else:
            table.index_add_(0, self.ids, self.rows)


#: For each table the parts of its gradient, which add up.
Gradients = dict[str, list[RowGradients]]


def joined(parts: list[RowGradients], table: Tensor) -> RowGradients:
    """Return parts of a gradient as one."""
    if len(parts) == 1:
        return RowGradients(parts[0].ids_in(table), parts[0].rows)
    ids = torch.cat([part.ids_in(table) for part in parts])
    return RowGradients(ids, torch.cat([part.rows for part in parts]))


class Optimizer(ABC):
    """Moves named tables; its state goes into checkpoints."""

    name: ClassVar[str]

    def __init__(
        self,
        tables: dict[str, Tensor],
        lr: float,
        weight_decay: float = 0.0,
        copies: dict[str, Copy] | None = None,
    ) -> None:
        self.tables, self.lr, self.weight_decay = tables, lr, weight_decay
        self.copies = copies or {}  #: copies of some tables, refreshed when they move
        self._no_copy = Int8Table(torch.empty(0, 1))
        self.device = next(iter(tables.values())).device
        #: Factor of the learning rate, moved by a schedule; on the device for CUDA graphs.
        self.lr_factor = 1.0
        self.lr_scale = torch.ones((), device=self.device)

    def set_lr_factor(self, factor: float) -> None:
        """Multiply the learning rate of the steps from now on.

        Deferred updates take the factor of the step in which they are made.
        """
        if factor != self.lr_factor:
            self.lr_factor = factor
            self.lr_scale.fill_(factor)

    def step(self, gradients: Gradients) -> None:
        """Take one step."""
        self.accumulate(gradients)
        self.apply(gradients)

    @abstractmethod
    def accumulate(self, gradients: Gradients) -> None:
        """Do the first half of a step, which does not touch the tables yet."""

    @abstractmethod
    def apply(self, gradients: Gradients) -> None:
        """Do the second half of a step: move the tables."""

    def gradient_table(self, name: str) -> Tensor | None:
        """Return a table of zeros to which gradients of rows may be added, where there is one."""
        return None

    def adds_rows_up(self, name: str) -> bool:
        """Tell whether gradients of rows are added up by the optimiser, without such a table."""
        return False

    def int8_copy(self, name: str) -> Int8Table:
        """Return the int8 copy of a table, or an empty one."""
        copy = self.copies.get(name)
        return copy if isinstance(copy, Int8Table) else self._no_copy

    def refresh_copies(self) -> None:
        """Write all copies anew."""
        for name, copy in self.copies.items():
            copy.refresh(self.tables[name])

    # Deferred updates: none, unless an optimiser has them -----------------------------------------

    def defer(self, name: str, steps: int) -> None:  # noqa: B027
        """Update the rows of a table that have no gradient every so many steps from now on."""

    def is_deferred(self, name: str) -> bool:
        """Tell whether updates of rows of a table may be outstanding."""
        return False

    def catch_up(self, name: str, ids: Tensor) -> None:  # noqa: B027
        """Bring rows to the present step; ids may repeat."""

    def catch_up_all(self) -> None:  # noqa: B027
        """Bring every row to the present step."""

    def caught_up(self) -> dict[str, Tensor]:
        """Return the tables as of the present step; those with deferred updates are copied."""
        return dict(self.tables)

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return everything a checkpoint must hold."""

    @abstractmethod
    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned, here or on another device, after the tables."""

    def forget(self) -> None:
        """Start again: no moments, no steps."""
        for tensor in self.state().values():
            tensor.zero_()
        self.load_state(self.state())


def blocks(rows: int) -> list[slice]:
    """Return the rows of a table in blocks: what is made of one on the way is soon forgotten."""
    return [slice(start, start + _BLOCK_ROWS) for start in range(0, rows, _BLOCK_ROWS)]
