"""Adam with dense semantics, fed with the gradients of the few rows that have one.

Every parameter moves in every step, as with ``torch.optim.Adam``; L2 enters as coupled weight
decay. On the CPU and on CUDA one fused pass reads the row gradients where they are; elsewhere they
are added into a table that is kept, and torch's own Adam reads that. Lazy Adam moves only the rows
that have a gradient: for tables so large that moving all of them is most of a step.

Updates of rows without a gradient may be deferred by the kernels (:meth:`Adam.defer`): such rows
move some steps later, all those steps at once, unless they are asked for before
(:meth:`Adam.catch_up`).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from nscaching.kernels.constants import KEPT_STEPS, MOST_DEFERRED
from nscaching.kernels.registry import CPU, GPU, compiled_for
from nscaching.kernels.threads import as_many_threads_as_pay
from nscaching.optim.adam_steps import BETA1, BETA2, EPSILON, Moments
from nscaching.optim.base import (
    Copy,
    Gradients,
    Optimizer,
    RowGradients,
    blocks,
    joined,
    joined_products,
)


class Adam(Optimizer):
    """Adam over named tables; its state goes into checkpoints."""

    name = "adam"

    def __init__(
        self,
        tables: dict[str, Tensor],
        lr: float,
        weight_decay: float,
        *,
        lazy: bool = False,
        copies: dict[str, Copy] | None = None,
    ) -> None:
        super().__init__(tables, lr, weight_decay, copies)
        self.lazy = lazy
        self.mean = {name: torch.zeros_like(table) for name, table in tables.items()}
        self.square = {name: torch.zeros_like(table) for name, table in tables.items()}
        device = self.device
        # A float32 counts to 16 million, but Apple's GPUs have no more.
        precise = torch.float32 if device.type == "mps" else torch.float64
        self.count = torch.zeros((), device=device, dtype=precise)
        self._scalars = torch.zeros(2 * KEPT_STEPS, device=device)  #: of the last steps, on a GPU
        self._on_cpu = compiled_for(device) == CPU
        self._on_gpu = compiled_for(device) == GPU
        #: On the CPU the place of a row's gradient, on a GPU the last step it had one.
        self._mark = {
            name: torch.full((len(table),), -1, dtype=torch.int32, device=device)
            for name, table in tables.items()
        }
        #: The step as of which the moments of a row are stored, on a GPU that of the row itself,
        #: and the one it has moved to.
        self._since, self._moved = (
            {
                name: torch.zeros(len(table), dtype=torch.int32, device=device)
                for name, table in tables.items()
                if self._on_cpu or self._on_gpu
            }
            for _ in range(2)
        )
        if self._on_gpu:
            self._since = self._moved
        #: A gradient without rows, kept since a step has no time to make one.
        self._nowhere = torch.empty(0, dtype=torch.int64, device=device)
        self._none = {
            name: RowGradients(self._nowhere, table[:0], table[:0])
            for name, table in tables.items()
        }
        self._deferred: dict[str, int] = {}
        self._arrays: dict[str, list[np.ndarray]] = {}  #: on the CPU, what the kernel works on
        self._fading = _fading(self._on_cpu)
        self._gradient = {
            name: torch.zeros_like(table) for name, table in tables.items() if not self._on_cpu
        }
        self._torch: torch.optim.Adam | None = None
        if not self._on_cpu and not self._on_gpu and not lazy:
            self._torch = self._torch_adam(device)

    def accumulate(self, gradients: Gradients) -> None:
        """Do the first half of a step, which does not touch the tables yet."""
        if self._on_gpu:
            self._accumulate_on_gpu(gradients)
            return
        self.count += 1
        if self._torch is not None:
            for name, table in self._gradient.items():
                table.zero_()
                for part in gradients.get(name, ()):
                    part.add_to(table)

    def apply(self, gradients: Gradients) -> None:
        """Do the second half of a step: move the tables."""
        if self._torch is not None:
            self._torch.param_groups[0]["lr"] = self.lr * self.lr_factor
            self._torch.step()
            self.refresh_copies()
            return
        for name in self.tables:
            if self._on_gpu:
                self._step_on_gpu(name, gradients.get(name, []))
                continue
            parts = gradients.get(name, [self._none[name]])  # a table without one moves as well
            (self._step_on_cpu if self._on_cpu else self._lazy_step)(name, parts)
        if not self._on_cpu and not self._on_gpu:
            self.refresh_copies()

    # Deferred updates, by the kernels -----------------------------------------------------------

    def defer(self, name: str, steps: int) -> None:
        """Update the rows of a table that have no gradient every so many steps from now on.

        Whoever reads rows between two steps calls :meth:`catch_up` first. On a GPU gradients are
        then given by rows, not as a table.
        """
        self.catch_up_all()
        if (self._on_cpu or self._on_gpu) and not self.lazy:
            self._deferred[name] = min(steps, MOST_DEFERRED)
            if self._on_gpu:  # where none are deferred this is not kept up to date
                self._moved[name].copy_(self.count)

    def is_deferred(self, name: str) -> bool:
        """Tell whether updates of rows of a table may be outstanding."""
        return self._deferred.get(name, 1) > 1

    def catch_up(self, name: str, ids: Tensor) -> None:
        """Bring rows to the present step; ids may repeat, and -1 is padding.

        Int8 copies follow in the next step, in which these rows are expected to have a gradient.
        """
        if self.is_deferred(name):
            move = self._catch_up_on_gpu if self._on_gpu else self._move
            move(name, ids, period=0)

    def catch_up_all(self) -> None:
        """Bring every row to the present step."""
        for name in self.tables:
            if self.is_deferred(name):
                move = self._catch_up_on_gpu if self._on_gpu else self._move
                move(name, self._nowhere, period=1)

    def caught_up(self) -> dict[str, Tensor]:
        """Return the tables as of the present step; those with deferred updates are copied."""
        return {
            name: self._caught_up(name)
            if self.is_deferred(name) and bool((self._moved[name] < self.count).any())
            else table
            for name, table in self.tables.items()
        }

    def _caught_up(self, name: str) -> Tensor:
        table = self.tables[name].clone()
        for block in blocks(len(table)):
            moments = self.mean[name][block].clone(), self.square[name][block].clone()
            steps = self._since[name][block], self._moved[name][block]
            self._catch_up(Moments(table[block], *moments), *steps)
        return table

    def _catch_up(self, rows: Moments, since: Tensor, moved: Tensor) -> None:
        rate = self.lr * self.lr_factor
        rows.catch_up(since, moved, int(self.count), rate, self.weight_decay)

    def gradient_table(self, name: str) -> Tensor | None:
        """Return the table in which a GPU adds up gradients, unless rows must be known."""
        some = self.lazy or self.is_deferred(name)
        return self._gradient[name] if self._on_gpu and not some else None

    def adds_rows_up(self, name: str) -> bool:
        """Tell whether gradients of rows are added up by the optimiser, without such a table."""
        return self._on_gpu and (self.lazy or self.is_deferred(name))

    def takes_products(self, name: str, few: bool) -> bool:
        """Tell whether gradients of a table need not be written out: they may have slopes."""
        return self._on_cpu and few

    def _step_on_cpu(self, name: str, parts: list[RowGradients]) -> None:
        from nscaching.kernels.row_sums_cpu import as_gradient

        period = 0 if self.lazy else self._deferred.get(name, 1)
        table, none = self.tables[name], self._none[name]
        written = [part for part in parts if part.slopes is None]
        products = joined_products([part for part in parts if part.slopes is not None] or [none])
        assert products.slopes is not None
        first, *others = [part.rows for part in written] or [none.rows]
        second = torch.cat(others) if len(others) > 1 else others[0] if others else none.rows
        gradient = as_gradient(first, second, products.slopes, products.rows, products.places)
        ids = torch.cat([part.ids_in(table) for part in (*written, products)])
        self._move(name, ids, period, gradient)

    def _move(
        self,
        name: str,
        ids: Tensor,
        period: int,
        gradient: tuple[np.ndarray, ...] | None = None,
    ) -> None:
        from nscaching.kernels.adam_cpu import move
        from nscaching.kernels.row_sums_cpu import listed_rows, no_gradient

        if name not in self._arrays:  # nothing of it is ever replaced
            kept = (self.tables, self.mean, self.square, self._since, self._moved, self._mark)
            copy = self.int8_copy(name)
            tensors = [*(part[name] for part in kept), copy.values, copy.scale]
            self._arrays[name] = [tensor.numpy() for tensor in tensors]
        table, mean, square, since, moved, slot, values, scale = self._arrays[name]
        following, rows = listed_rows(ids, slot)
        with as_many_threads_as_pay(table.size):
            move(
                table,
                mean,
                square,
                since,
                moved,
                slot,
                rows,
                following,
                gradient or no_gradient(self.tables[name]),
                values,
                scale,
                self._fading,
                int(self.count),
                int(self.count) % max(period, 1),
                period,
                self.lr * self.lr_factor,
                BETA1,
                BETA2,
                EPSILON,
                self.weight_decay,
                self.lazy,
            )

    def _accumulate_on_gpu(self, gradients: Gradients) -> None:
        from nscaching.kernels import adam_gpu

        logs = (math.log(BETA1), math.log(BETA2))
        adam_gpu.begin(self.count, self._scalars, self.lr, self.lr_scale, logs)
        for name, parts in gradients.items():
            gradient, mark = self._gradient[name], self._mark[name]
            for ids, rows, *_ in map(RowGradients.written_out, parts):
                if ids is None:
                    if rows is not gradient:  # which holds them already
                        gradient.add_(rows)
                    mark.copy_(self.count.expand_as(mark))
                else:
                    adam_gpu.accumulate(gradient, mark, self.count, ids, rows)

    def _step_on_gpu(self, name: str, parts: list[RowGradients]) -> None:
        from nscaching.kernels import adam_gpu

        if self.is_deferred(name):
            ids = [part.ids_in(self.tables[name]) for part in parts]
            listed = torch.cat(ids) if ids else self._nowhere
            self._catch_up_on_gpu(name, listed, self._deferred[name])
            return
        copy = self.copies.get(name)
        adam_gpu.adam(
            self.tables[name],
            None if copy is None else copy.values,
            self.mean[name],
            self.square[name],
            self._gradient[name],
            self._mark[name],
            self.count,
            self._scalars,
            (BETA1, BETA2),
            EPSILON,
            self.weight_decay,
            self.lazy,
        )

    def _catch_up_on_gpu(self, name: str, ids: Tensor, period: int) -> None:
        from nscaching.kernels import adam_gpu

        copy = self.copies.get(name)
        adam_gpu.catch_up(
            self.tables[name],
            None if copy is None else copy.values,
            (self.mean[name], self.square[name]),
            (self._gradient[name], self._mark[name]),
            self._moved[name],
            ids,
            period,
            (self.count, self._scalars),
            (BETA1, BETA2),
            EPSILON,
            self.weight_decay,
        )

    def _lazy_step(self, name: str, parts: list[RowGradients]) -> None:
        """Move the rows with a gradient, with plain torch."""
        ids, rows = joined(parts, self.tables[name])
        touched, place = torch.unique(ids, return_inverse=True)
        table = self.tables[name]
        gradient = rows.new_zeros(len(touched), rows.shape[1]).index_add_(0, place, rows)
        gradient += self.weight_decay * table[touched]
        rows_of = Moments(table, self.mean[name], self.square[name])
        rows_of.take_step(touched, gradient, float(self.count), self.lr * self.lr_factor)

    def _torch_adam(self, device: torch.device) -> torch.optim.Adam:
        """Return torch's Adam working on our tables and on our state."""
        self._parameters = {name: torch.nn.Parameter(table) for name, table in self.tables.items()}
        adam = torch.optim.Adam(
            self._parameters.values(),
            lr=self.lr,
            betas=(BETA1, BETA2),
            eps=EPSILON,
            weight_decay=self.weight_decay,
            fused=device.type in ("cpu", "cuda"),
        )
        for name, parameter in self._parameters.items():
            parameter.grad = self._gradient[name]
            adam.state[parameter] = {
                "step": torch.zeros((), device=device),
                "exp_avg": self.mean[name],
                "exp_avg_sq": self.square[name],
            }
        return adam

    def state(self) -> dict[str, Tensor]:
        """Return the moments and the number of steps as named tensors."""
        waiting: dict[str, Tensor] = {}
        for name, moved in self._moved.items():
            if self._on_gpu and self.is_deferred(name):
                waiting |= {f"{name}.since": moved.clone(), f"{name}.moved": moved}
            elif self._on_cpu and not self.lazy:
                waiting |= {f"{name}.since": self._since[name], f"{name}.moved": moved}
        return {**self._moments(), **waiting}

    def _moments(self) -> dict[str, Tensor]:
        return {
            "count": self.count,
            **{f"{name}.mean": table for name, table in self.mean.items()},
            **{f"{name}.square": table for name, table in self.square.items()},
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned, here or on another device, after the tables."""
        for name, mine in self._moments().items():
            mine.copy_(state[name])
        for mark in self._mark.values():
            mark.fill_(-1)  # a stamp of other steps would be fresh again at the step of its number
        for name, table in self.tables.items():
            since, moved = (state.get(f"{name}.{part}") for part in ("since", "moved"))
            if self._on_cpu:
                self._since[name].copy_(self.count if since is None else since)
                self._moved[name].copy_(self.count if moved is None else moved)
                self._check_waiting(name)
                continue
            if since is not None:  # rows that waited there do not wait here
                moved = torch.full_like(since, int(self.count)) if moved is None else moved
                for block in blocks(len(table)):
                    rows = Moments(table[block], self.mean[name][block], self.square[name][block])
                    steps = (steps[block].to(table.device) for steps in (since, moved))
                    self._catch_up(rows, *steps)
            if self._on_gpu:
                self._moved[name].copy_(self.count)
        if self._torch is not None:
            for parameter in self._parameters.values():
                self._torch.state[parameter]["step"].copy_(self.count)

    def _check_waiting(self, name: str) -> None:
        """Refuse what the kernels would read beside their tables for."""
        since, moved = self._since[name], self._moved[name]
        waited = self.count - moved
        if not len(moved) or self.lazy:
            return
        if waited.min() < 0 or waited.max() > MOST_DEFERRED or bool((since > moved).any()):
            raise RuntimeError(f"rows of the table {name} have waited for impossible steps")


def _fading(compiled: bool) -> np.ndarray:
    """Return what is left of the mean, and of the root of the square, after 0, 1, ... steps."""
    if not compiled:
        return np.empty((2, 0), dtype=np.float32)
    from nscaching.kernels.adam_cpu import RESTS_AFTER

    steps = np.arange(RESTS_AFTER + 1)
    return np.stack([BETA1**steps, BETA2 ** (steps / 2)]).astype(np.float32)
