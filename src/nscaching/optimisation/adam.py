"""Adam with dense semantics, fed with the gradients of the few rows that have one.

Every parameter moves in every step, as with ``torch.optim.Adam``; L2 enters as coupled weight
decay. On the CPU and on CUDA one fused pass reads the row gradients where they are; elsewhere they
are added into a table that is kept, and torch's own Adam reads that. Lazy Adam moves only the rows
that have a gradient: for tables so large that moving all of them is most of a step.

On a CPU a step waits for memory: it reads and writes three tables. Tables with a compact copy may be
moved late (``every``): a row that nobody reads but through the copy takes several steps at once. Who
reads rows of the table asks for them by :meth:`DenseAdam.catch_up`, who reads all of it by
:meth:`DenseAdam.settle`; they then find what a step at a time would have given. The copy has a row as
it was moved last, at most ``every`` - 1 steps ago; it is part of the state.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from nscaching.acceleration import HAVE_NUMBA, HAVE_TRITON
from nscaching.scoring import CompactTable

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
#: For each table, ids (m,) and the gradients of those rows (m, width).
Gradients = dict[str, tuple[Tensor, Tensor]]


class DenseAdam:
    """Adam over named tables; its state goes into checkpoints."""

    def __init__(
        self,
        tables: dict[str, Tensor],
        lr: float,
        weight_decay: float,
        *,
        lazy: bool = False,
        copies: dict[str, CompactTable] | None = None,
        every: int = 1,
    ) -> None:
        self.tables, self.lr, self.weight_decay, self.lazy = tables, lr, weight_decay, lazy
        self.copies = copies or {}  #: of some tables, refreshed when they move
        self.every = every  #: steps until a row of a table with a copy is moved, gradient or not
        self.mean = {name: torch.zeros_like(table) for name, table in tables.items()}
        self.square = {name: torch.zeros_like(table) for name, table in tables.items()}
        device = next(iter(tables.values())).device
        self.count = torch.zeros((), device=device)
        self._scalars = torch.zeros(2, device=device)
        self._on_cpu = HAVE_NUMBA and device.type == "cpu"
        self._on_gpu = HAVE_TRITON and device.type == "cuda"
        #: On the CPU the place of a row's gradient, on a GPU the last step it had one.
        self._mark = {
            name: torch.full((len(table),), -1, dtype=torch.int32, device=device)
            for name, table in tables.items()
        }
        self._gradient = {
            name: torch.zeros_like(table) for name, table in tables.items() if not self._on_cpu
        }
        #: The step that a row has reached, and of the last steps their sizes and corrections.
        self._reached = {
            name: np.zeros(len(table) if self._on_cpu else 0, dtype=np.int64)
            for name, table in tables.items()
        }
        self._sizes, self._roots = np.zeros((2, every), dtype=np.float32)
        self._no_copy = CompactTable(torch.empty(0, 1))
        self._torch: torch.optim.Adam | None = None
        if not self._on_cpu and not self._on_gpu and not lazy:
            self._torch = self._torch_adam(device)

    def step(self, gradients: Gradients) -> None:
        """Take one step. ``gradients`` has, for each table, ids (m,) and their rows (m, width).

        Ids may repeat; their gradients add up.
        """
        self.accumulate(gradients)
        self.apply(gradients)

    def accumulate(self, gradients: Gradients) -> None:
        """Do the first half of a step, which does not touch the tables yet."""
        if self._on_gpu:
            self._accumulate_on_gpu(gradients)
            return
        self.count += 1
        if self._torch is not None:
            for name, (ids, rows) in gradients.items():
                self._gradient[name].zero_().index_add_(0, ids, rows)

    def apply(self, gradients: Gradients) -> None:
        """Do the second half of a step: move the tables."""
        if self._torch is not None:
            self._torch.step()
        elif self._on_cpu:
            self._count_on_cpu()
        for name, (ids, rows) in gradients.items():
            if self._on_cpu:
                self._advance(name, ids, rows.contiguous(), *self._due(name))
            elif self._on_gpu:
                self._step_on_gpu(name)
            elif self._torch is None:
                self._lazy_step(name, ids, rows)
            if not self._on_cpu and name in self.copies:
                due = torch.arange(*self._due(name), device=ids.device)
                self.copies[name].refresh(self.tables[name], torch.cat([ids, due]))

    def catch_up(self, name: str, ids: Tensor) -> None:
        """Bring rows of a table to the present step, and its copy of them."""
        if self.every == 1 or name not in self.copies:
            return
        if self._on_cpu:
            self._advance(name, ids, self.tables[name][:0], 0, 0)
        else:
            self.copies[name].refresh(self.tables[name], ids)

    def settle(self) -> None:
        """Bring all rows of all tables to the present step; copies stay as they are."""
        if self.every == 1 or not self._on_cpu:
            return
        for name in self.copies:
            table = self.tables[name]
            nobody = torch.empty(0, dtype=torch.int64)
            self._advance(name, nobody, table[:0], 0, len(table), copied=False)

    def _due(self, name: str) -> tuple[int, int]:
        """Return the first and the last but one row that move in this step, gradient or not."""
        size = len(self.tables[name])
        if self.lazy:
            return 0, 0
        if self.every == 1 or name not in self.copies:
            return 0, size
        turn = int(self.count) % self.every
        return turn * size // self.every, (turn + 1) * size // self.every

    def _count_on_cpu(self) -> None:
        count = int(self.count)
        self._sizes[count % self.every] = self.lr / (1 - BETA1**count)
        self._roots[count % self.every] = (1 - BETA2**count) ** -0.5

    def _advance(
        self, name: str, ids: Tensor, gradient: Tensor, first: int, stop: int, copied: bool = True
    ) -> None:
        """Move the rows of ``ids``, and those from ``first`` to ``stop``, to the present step."""
        import numba

        from nscaching.optimisation import cpu_kernels

        slot, numbers = self._mark[name].numpy(), ids.numpy()
        rows = np.empty(len(numbers), dtype=np.int64)
        listed = cpu_kernels.list_rows(numbers, gradient.numpy(), slot, rows)
        copy = self.copies.get(name, self._no_copy) if copied else self._no_copy
        cpu_kernels.advance(
            self.tables[name].numpy(),
            self.mean[name].numpy(),
            self.square[name].numpy(),
            self._reached[name],
            rows[:listed],
            first,
            stop,
            slot,
            gradient.numpy(),
            copy.values.numpy(),
            copy.scale.numpy(),
            int(self.count),
            self._sizes,
            self._roots,
            (BETA1, BETA2),
            EPSILON,
            self.weight_decay,
            self.lazy,
            numba.get_num_threads(),
        )

    def _accumulate_on_gpu(self, gradients: Gradients) -> None:
        from nscaching.optimisation import gpu_kernels

        gpu_kernels.begin(self.count, self._scalars, self.lr, (math.log(BETA1), math.log(BETA2)))
        for name, (ids, rows) in gradients.items():
            gpu_kernels.accumulate(self._gradient[name], self._mark[name], self.count, ids, rows)

    def _step_on_gpu(self, name: str) -> None:
        from nscaching.optimisation import gpu_kernels

        gpu_kernels.adam(
            self.tables[name],
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

    def _lazy_step(self, name: str, ids: Tensor, rows: Tensor) -> None:
        """Move the rows with a gradient, with plain torch."""
        touched, place = torch.unique(ids, return_inverse=True)
        table, count = self.tables[name], float(self.count)
        gradient = rows.new_zeros(len(touched), rows.shape[1]).index_add_(0, place, rows)
        gradient += self.weight_decay * table[touched]
        mean = self.mean[name][touched].mul_(BETA1).add_(gradient, alpha=1 - BETA1)
        square = self.square[name][touched].mul_(BETA2).add_(gradient**2, alpha=1 - BETA2)
        self.mean[name][touched], self.square[name][touched] = mean, square
        root = square.sqrt() / (1 - BETA2**count) ** 0.5 + EPSILON
        table[touched] -= self.lr / (1 - BETA1**count) * mean / root

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

    def forget(self) -> None:
        """Start again: no moments, no steps."""
        self.settle()
        for tensor in self._moments().values():
            tensor.zero_()
        self._begin_at_count()

    def state(self) -> dict[str, Tensor]:
        """Return the moments, the number of steps and the copies as named tensors."""
        self.settle()
        return {**self._moments(), **self._copied()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned; without its copies, those here stay."""
        for name, mine in self._moments().items():
            mine.copy_(state[name])
        for name, mine in self._copied().items():
            if name in state:
                mine.copy_(state[name])
        self._begin_at_count()

    def _moments(self) -> dict[str, Tensor]:
        return {
            "count": self.count,
            **{f"{name}.mean": table for name, table in self.mean.items()},
            **{f"{name}.square": table for name, table in self.square.items()},
        }

    def _copied(self) -> dict[str, Tensor]:
        """Return the copies that cannot be made again from their tables."""
        late = self.copies.items() if self.every > 1 else ()
        values = {f"{name}.copy": copy.values for name, copy in late}
        return {**values, **{f"{name}.copy_scale": copy.scale for name, copy in late}}

    def _begin_at_count(self) -> None:
        """Take all rows to have reached the present step."""
        for reached in self._reached.values():
            reached.fill(int(self.count))
        if self._torch is not None:
            for parameter in self._parameters.values():
                self._torch.state[parameter]["step"].copy_(self.count)
