"""How a step is executed: one operation after another, or replayed as a CUDA graph.

On CUDA the whole step, batch included, is captured once and replayed: nothing goes back to the host
within an epoch. In the graph the cache updates and the gradients, which do not depend on each
other, run side by side and meet before the optimiser moves the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from nscaching.kernels.cuda_graphs import capture
from nscaching.kernels.registry import GPU, compiled_for
from nscaching.sampling import Batch
from nscaching.training.step import TrainingStep
from nscaching.training.tracing import Tracer

#: Steps executed one by one, for real, before a graph is captured: kernels get compiled.
_WARM_UP_STEPS = 3
#: Steps by which updates of entity rows without a gradient are deferred.
DEFERRED_STEPS = 16
#: Batches gathered at once.
_BATCHES_AHEAD = 32


class Executor:
    """Takes the steps of an epoch, one operation after another."""

    def __init__(
        self, step: TrainingStep, columns: Tensor, batch_size: int, tracer: Tracer | None = None
    ) -> None:
        self.training_step, self.columns, self.batch_size = step, columns, batch_size
        self.tracer = tracer  #: sees every step, changes none
        step.observer = tracer
        device = columns.device
        self.order = torch.empty(0, dtype=torch.int64, device=device)
        self.start = 0
        #: Triples of the next steps as batches have them, and where in the order they begin.
        self._ahead, self._ahead_start = torch.empty(6, 0, dtype=torch.int64, device=device), 0
        self.total = torch.zeros((), device=device)
        step.optimizer.defer("entity", DEFERRED_STEPS if self._may_defer() else 1)

    def _may_defer(self) -> bool:
        """Tell whether updates of rows without a gradient may wait, and whether that pays.

        On a CPU a cache that is updated without an int8 copy reads rows of the table itself. On a
        GPU candidates for a cache may be scored from rows that are some steps old, as they are
        from an int8 copy; but there it does not pay where a step reads a quarter of the rows.
        """
        step = self.training_step
        sampler, model = step.sampler, step.model
        if compiled_for(self.columns.device) == GPU:
            read = step.rows_read(self.batch_size)
            return read is not None and 4 * read <= len(model.entity)
        return not sampler.reads_other_rows and not (
            sampler.scores_candidates and model.int8 is None
        )

    def begin_epoch(self, order: Tensor, first_step: int, loss_so_far: float = 0.0) -> None:
        """Take the order of an epoch's triples; steps before ``first_step`` are done already."""
        self.order = order
        self.start = first_step * self.batch_size
        self._ahead = self._ahead[:, :0]
        self.total.fill_(loss_so_far)
        if self.tracer is not None:
            self.tracer.begin_epoch(order, first_step)

    def step(self) -> None:
        """Take the next step; after the last one of an epoch every row is up to date."""
        batch = self._batch_at(self.start)
        self.start += self.batch_size
        self.total += self.training_step(batch)
        if self.start >= len(self.order):
            self.training_step.optimizer.catch_up_all()
        if self.tracer is not None:
            self.tracer.after_step()

    def _batch_at(self, start: int) -> Batch:
        """Return the batch at a place of the order; those of many steps are gathered at once."""
        place = start - self._ahead_start
        if not 0 <= place < self._ahead.shape[1]:
            index = self.order[start : start + _BATCHES_AHEAD * self.batch_size]
            columns = self.columns.index_select(1, index).long()
            self._ahead, self._ahead_start = torch.cat([index.unsqueeze(0), columns]), start
            place = 0
        return Batch(*self._ahead[:, place : place + self.batch_size].unbind(0))

    def loss(self) -> float:
        """Return the loss summed over the steps of the epoch so far."""
        return float(self.total)


class GraphExecutor(Executor):
    """Replays batches as CUDA graphs: one for whole batches, one for the last, smaller one."""

    def __init__(
        self, step: TrainingStep, columns: Tensor, batch_size: int, tracer: Tracer | None = None
    ) -> None:
        super().__init__(step, columns, batch_size, tracer)
        device = columns.device
        #: Steps of each kind that were executed one by one, and what was captured then.
        self._executed: dict[tuple[int, bool, bool], int] = {}
        self._graphs: dict[tuple[int, bool, bool], torch.cuda.CUDAGraph] = {}
        self._order = torch.zeros(columns.shape[1], dtype=torch.int64, device=device)
        self._start = torch.zeros((), dtype=torch.int64, device=device)
        self._streams = [torch.cuda.Stream(device) for _ in range(2)]  # type: ignore[no-untyped-call]

    def begin_epoch(self, order: Tensor, first_step: int, loss_so_far: float = 0.0) -> None:
        """Put the order where the graph reads it."""
        super().begin_epoch(order, first_step, loss_so_far)
        self._order.copy_(order)
        self._start.fill_(self.start)

    def step(self) -> None:
        """Replay the graph where there is one; else execute, and capture once warm."""
        size = min(self.batch_size, len(self.order) - self.start)
        norm = self.tracer is not None and self.tracer.takes_norm()
        kind = size, self.training_step.sampler.phase(), norm
        executed = self._executed.get(kind, 0)
        # A smaller batch comes once an epoch; the kernels of the others are warm by then.
        if executed < (_WARM_UP_STEPS if size == self.batch_size else 1):
            super().step()
            self._start += self.batch_size
            self._executed[kind] = executed + 1
            return
        if kind not in self._graphs:
            self._graphs[kind] = self._capture(size)
        self._graphs[kind].replay()
        self.start += self.batch_size
        if self.start >= len(self.order):
            self.training_step.optimizer.catch_up_all()
        if self.tracer is not None:
            self.tracer.after_step()

    def _capture(self, size: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self.training_step.generators:
            graph.register_generator_state(generator)
        here = self._start.clone()
        self._next_batch(size)  # compiles the one kernel that the steps so far have not used
        self._start.copy_(here)
        # Graphs that are replayed in turn share their memory: no step needs that of another.
        pool = next((each.pool() for each in self._graphs.values()), None)
        capture(lambda: self._captured_step(size), graph, pool)
        return graph

    def _captured_step(self, size: int) -> None:
        self.total += self.training_step(self._next_batch(size), self._beside)

    @contextmanager
    def _beside(self, jobs: list[Callable[[], None]]) -> Iterator[None]:
        """Do jobs on streams of their own, beside what follows."""
        main = torch.cuda.current_stream()
        for number, job in enumerate(jobs):
            stream = self._streams[number % len(self._streams)]
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                job()
        yield
        for stream in self._streams[: len(jobs)]:
            main.wait_stream(stream)

    def _next_batch(self, size: int) -> Batch:
        """Gather the batch at the place the device has reached, and move that place on."""
        from nscaching.kernels.batch_gpu import gather_batch

        parts = gather_batch(self._order, self._start, self.columns, size)
        self._start += self.batch_size
        return Batch(*parts.unbind(0))


def make_executor(
    step: TrainingStep, columns: Tensor, batch_size: int, tracer: Tracer | None = None
) -> Executor:
    """Return the fastest executor the device has; a graph needs the kernels, which never wait."""
    on_gpu = columns.device.type == "cuda" and compiled_for(columns.device) == GPU
    return (GraphExecutor if on_gpu and step.may_be_captured else Executor)(
        step, columns, batch_size, tracer
    )
