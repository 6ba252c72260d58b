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
    """The gradient of some rows of a table, or of all of them.

    With ``slopes`` it is not written out: the rows are k slopes each times q vectors, as those of
    the candidates of a dot product are. Ids of -1 are padding then.
    """

    ids: Tensor | None  #: (m,), may repeat, their gradients add up; None: all rows, in order
    rows: Tensor  #: (m, width), or the vectors (v, width)
    slopes: Tensor | None = None  #: (q, k), m = q k
    places: Tensor | None = None  #: (q,): which vectors they are; all, in their order, by default

    def ids_in(self, table: Tensor) -> Tensor:
        """Return the ids, also where the gradient is of all rows."""
        if self.ids is not None:
            return self.ids
        return torch.arange(len(table), device=table.device)

    def written_out(self) -> RowGradients:
        """Return the gradient with a row per id, and without padding.

        On a GPU, where shapes must not depend on values, padding is a row of zeros for row 0.
        """
        if self.slopes is None or self.ids is None:
            return self
        vectors = self.rows if self.places is None else self.rows[self.places]
        rows = (self.slopes.unsqueeze(2) * vectors.unsqueeze(1)).flatten(0, 1)
        there = self.ids >= 0
        if rows.device.type == "cuda":
            return RowGradients(self.ids.clamp_min(0), rows * there.unsqueeze(1))
        return RowGradients(self.ids[there], rows[there])

    def add_to(self, table: Tensor) -> None:
        """Add the gradient to a table of zeros, in place."""
        ids, rows, *_ = self.written_out()
        if ids is None:
            table.add_(rows)
        else:
            table.index_add_(0, ids, rows)


#: For each table the parts of its gradient, which add up.
Gradients = dict[str, list[RowGradients]]


def joined(parts: list[RowGradients], table: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ids and the rows of all parts of a gradient, written out."""
    parts = [part.written_out() for part in parts]
    if len(parts) == 1:
        return parts[0].ids_in(table), parts[0].rows
    ids = torch.cat([part.ids_in(table) for part in parts])
    return ids, torch.cat([part.rows for part in parts])


def joined_products(parts: list[RowGradients]) -> RowGradients:
    """Return parts that have slopes as one; vectors that several of them have are there once."""
    if len(parts) == 1:
        return parts[0]
    vectors: list[Tensor] = []
    starts: dict[tuple[int, int], int] = {}
    slopes, places, count = [], [], 0
    for part in parts:
        assert part.slopes is not None
        key = part.rows.data_ptr(), len(part.rows)
        if key not in starts:
            starts[key] = count
            vectors.append(part.rows)
            count += len(part.rows)
        own = part.places
        if own is None:
            own = torch.arange(len(part.slopes), device=part.slopes.device)
        places.append((own + starts[key]).repeat_interleave(part.slopes.shape[1]))
        slopes.append(part.slopes.reshape(-1, 1))
    ids = torch.cat([part.ids for part in parts if part.ids is not None])
    return RowGradients(ids, torch.cat(vectors), torch.cat(slopes), torch.cat(places))


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

    def takes_products(self, name: str, few: bool) -> bool:
        """Tell whether gradients of a table need not be written out: they may have slopes.

        ``few`` tells whether a question has few candidates.
        """
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
        """Bring rows to the present step; ids may repeat, and -1 is padding."""

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
