"""Adagrad: every parameter has its own learning rate, which falls with its squared gradients.

A row without a gradient does not move, so dense and lazy updates are the same. L2 enters as coupled
weight decay on the rows that have a gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.kernels.registry import CPU, GPU, compiled_for, register
from nscaching.models import Int8Table
from nscaching.optim.base import Copy, Gradients, Optimizer, RowGradients, joined

EPSILON = 1e-10


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
        self._on_cpu = compiled_for(self.device) == CPU
        self._gradient: dict[str, Tensor] = {}
        if compiled_for(self.device) == GPU:  # shapes must not depend on values in a CUDA graph
            self._gradient = {name: torch.zeros_like(table) for name, table in tables.items()}

    def gradient_table(self, name: str) -> Tensor | None:
        """Return the table in which a GPU adds up gradients."""
        return self._gradient.get(name)

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
        for name, parts in gradients.items():
            table, square, whole = self.tables[name], self.square[name], _whole(parts)
            gradient = self._gradient.get(name) if whole is None else whole
            if gradient is None:
                copy = self.int8_copy(name)
                inputs = (table, square, *joined(parts, table), copy.values, copy.scale)
                _adagrad_rows(*inputs, self.lr * self.lr_factor, self.weight_decay)
                continue
            clear = whole is None or whole is self._gradient.get(name)
            _adagrad_dense(table, square, gradient, rate, self.lr, self.weight_decay, clear)
            if name in self.copies:
                self.copies[name].refresh(table)

    def state(self) -> dict[str, Tensor]:
        """Return the sums of squared gradients."""
        return {f"{name}.square": table for name, table in self.square.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        for name, mine in self.state().items():
            mine.copy_(state[name])


def _whole(parts: list[RowGradients]) -> Tensor | None:
    """Return the part of a gradient that is of all rows, if there is one."""
    return next((part.rows for part in parts if part.ids is None), None)


def _plain_dense(
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
    table.sub_(lr * rate * gradient / (square.sqrt() + EPSILON))
    if clear:
        given.zero_()


def _plain_rows(
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
    table[touched] -= lr * gradient / (summed.sqrt() + EPSILON)
    if len(values):
        copy = Int8Table(table[touched])
        values[touched], scale[touched] = copy.values, copy.scale


_adagrad_rows = register("adagrad_rows", _plain_rows, cpu="adagrad_cpu:adagrad_rows")
_adagrad_dense = register(
    "adagrad_dense",
    _plain_dense,
    cpu="adagrad_cpu:adagrad_dense",
    gpu="adagrad_gpu:adagrad_dense",
)
