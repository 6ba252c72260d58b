"""Adam with dense semantics, fed with the gradients of the few rows that have one.

Every parameter moves in every step, as with ``torch.optim.Adam``; L2 enters as coupled weight
decay. On the CPU and on CUDA one fused pass reads the row gradients where they are; elsewhere they
are added into a table that is kept, and torch's own Adam reads that. Lazy Adam moves only the rows
that have a gradient: for tables so large that moving all of them is most of a step.
"""

from __future__ import annotations

import math

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
    ) -> None:
        self.tables, self.lr, self.weight_decay, self.lazy = tables, lr, weight_decay, lazy
        self.copies = copies or {}  #: of some tables, refreshed when they move
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
        #: On the CPU, without decay, the step as of which the moments of a row are stored.
        self._since = {
            name: torch.zeros(len(table), dtype=torch.int32)
            for name, table in tables.items()
            if self._on_cpu and not lazy and weight_decay == 0
        }
        self._gradient = {
            name: torch.zeros_like(table) for name, table in tables.items() if not self._on_cpu
        }
        self._no_copy = CompactTable(torch.empty(0, 1))
        self._no_steps = torch.empty(0, dtype=torch.int32)
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

    @property
    def summed(self) -> dict[str, Tensor]:
        """Between the two halves of a step: each table's gradient, where it exists as a whole."""
        return self._gradient if self._on_gpu or self._torch is not None else {}

    def apply(self, gradients: Gradients) -> None:
        """Do the second half of a step: move the tables."""
        if self._torch is not None:
            self._torch.step()
            self._refresh_copies()
            return
        for name, (ids, rows) in gradients.items():
            if self._on_cpu:
                self._step_on_cpu(name, ids, rows)
            elif self._on_gpu:
                self._step_on_gpu(name)
            else:
                self._lazy_step(name, ids, rows)
        if not self._on_cpu:
            self._refresh_copies()

    def _refresh_copies(self) -> None:
        for name, copy in self.copies.items():
            copy.refresh(self.tables[name])

    def _step_on_cpu(self, name: str, ids: Tensor, rows: Tensor) -> None:
        from nscaching.optimisation import cpu_kernels

        slot = self._mark[name]
        gradient = rows.contiguous().numpy()
        cpu_kernels.gather_rows(ids.numpy(), gradient, slot.numpy())
        count = int(self.count)
        copy = self.copies.get(name, self._no_copy)
        cpu_kernels.adam(
            self.tables[name].numpy(),
            self.mean[name].numpy(),
            self.square[name].numpy(),
            self._since.get(name, self._no_steps).numpy(),
            slot.numpy(),
            gradient,
            copy.values.numpy(),
            copy.scale.numpy(),
            count,
            self.lr / (1 - BETA1**count),
            BETA1,
            BETA2,
            (1 - BETA2**count) ** 0.5,
            EPSILON,
            self.weight_decay,
            self.lazy,
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
        for tensor in self.state().values():
            tensor.zero_()
        self.load_state(self.state())

    def state(self) -> dict[str, Tensor]:
        """Return the moments and the number of steps as named tensors."""
        return {**self._moments(), **{f"{name}.since": x for name, x in self._since.items()}}

    def _moments(self) -> dict[str, Tensor]:
        return {
            "count": self.count,
            **{f"{name}.mean": table for name, table in self.mean.items()},
            **{f"{name}.square": table for name, table in self.square.items()},
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned, here or on another device."""
        for name, mine in self._moments().items():
            mine.copy_(state[name])
        for name in self.tables:
            since = state.get(f"{name}.since")
            if name in self._since:
                self._since[name].copy_(self.count if since is None else since)
            elif since is not None:  # moments are kept up to date here
                age = (self.count - since.to(self.count.device)).unsqueeze(1)
                self.mean[name].mul_(BETA1**age)
                self.square[name].mul_(BETA2**age)
        if self._torch is not None:
            for parameter in self._parameters.values():
                self._torch.state[parameter]["step"].copy_(self.count)
