"""How a step is executed: one operation after another, or replayed as a CUDA graph.

A step is: negatives from the caches as they stand, then the caches are updated, then the gradient
step. On CUDA the whole of it, batch included, is captured once and replayed: nothing goes back to
the host within an epoch. In the graph the cache updates and the gradients, which do not depend on
each other, run side by side and meet before Adam.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nscaching.kernels.availability import HAVE_TRITON
from nscaching.kernels.cuda_graphs import capture
from nscaching.models import EmbeddingModel
from nscaching.sampling import Batch, Sampler
from nscaching.training.step import GradientStep
from nscaching.training.tracing import Tracer

#: Steps executed one by one, for real, before a graph is captured: kernels get compiled.
_WARM_UP_STEPS = 3
#: Steps that entity rows without a gradient wait for their turn to move, on a CPU.
TURNS = 16
#: Batches gathered at once.
_BATCHES_AHEAD = 32


class StepParts(NamedTuple):
    """What a step works with."""

    columns: Tensor  #: of :func:`nscaching.sampling.triple_columns`
    model: EmbeddingModel
    sampler: Sampler
    gradient_step: GradientStep
    generator: torch.Generator
    batch_size: int
    tracer: Tracer | None = None  #: sees every step, changes none


class Executor:
    """Takes the steps of an epoch, one operation after another."""

    def __init__(self, parts: StepParts) -> None:
        self.columns, self.model, self.sampler, self.gradient_step = parts[:4]
        self.generator, self.batch_size, self.tracer = parts[4:]
        device = self.columns.device
        self.order = torch.empty(0, dtype=torch.int64, device=device)
        self.start = 0
        #: Triples of the next steps as batches have them, and where in the order they begin.
        self._ahead, self._ahead_start = torch.empty(6, 0, dtype=torch.int64, device=device), 0
        self.total = torch.zeros((), device=device)
        in_turns = self.sampler.reads_only_its_rows(self.model)
        self.gradient_step.adam.take_turns("entity", TURNS if in_turns else 1)

    def begin_epoch(self, order: Tensor, first_step: int, loss_so_far: float = 0.0) -> None:
        """Take the order of an epoch's triples; steps before ``first_step`` are done already."""
        self.order = order
        self.start = first_step * self.batch_size
        self._ahead = self._ahead[:, :0]
        self.total.fill_(loss_so_far)
        if self.tracer is not None:
            self.tracer.begin_epoch(order, first_step)

    def step(self) -> None:
        """Take the next step; the last one of an epoch leaves no row waiting."""
        batch = self._batch_at(self.start)
        self.start += self.batch_size
        negatives = self.sampler.sample(batch, self.model, self.generator)
        self.gradient_step.settle(batch, negatives)
        self.sampler.update(batch, self.model, self.generator)
        observe = None if self.tracer is None else self.tracer.observe
        loss, scores = self.gradient_step(batch, negatives, observe)
        self.sampler.learn(batch, negatives, scores)
        self.total += loss
        if self.start >= len(self.order):
            self.gradient_step.adam.settle_all()
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
    """Replays whole batches as a CUDA graph; the last, smaller batch is executed as it comes."""

    def __init__(self, parts: StepParts) -> None:
        super().__init__(parts)
        device = self.columns.device
        self._steps_taken = 0
        self._graphs: dict[tuple[bool, bool], torch.cuda.CUDAGraph] = {}
        self._order = torch.zeros(self.columns.shape[1], dtype=torch.int64, device=device)
        self._start = torch.zeros((), dtype=torch.int64, device=device)
        self._streams = [torch.cuda.Stream(device) for _ in range(2)]  # type: ignore[no-untyped-call]

    def begin_epoch(self, order: Tensor, first_step: int, loss_so_far: float = 0.0) -> None:
        """Put the order where the graph reads it."""
        super().begin_epoch(order, first_step, loss_so_far)
        self._order.copy_(order)
        self._start.fill_(self.start)

    def step(self) -> None:
        """Replay the graph where there is one; else execute, and capture once warm."""
        whole = self.start + self.batch_size <= len(self.order)
        if not whole or self._steps_taken < _WARM_UP_STEPS:
            super().step()
            self._start += self.batch_size
        else:
            norm = self.tracer is not None and self.tracer.takes_norm()
            phase = self.sampler.phase(), norm
            if phase not in self._graphs:
                self._graphs[phase] = self._capture()
            self._graphs[phase].replay()
            self.start += self.batch_size
            if self.tracer is not None:
                self.tracer.after_step()
        self._steps_taken += 1

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        here = self._start.clone()
        self._next_batch()  # compiles the one kernel that the steps so far have not used
        self._start.copy_(here)
        capture(self._captured_step, graph)
        return graph

    def _captured_step(self) -> None:
        main = torch.cuda.current_stream()
        batch = self._next_batch()
        negatives = self.sampler.sample(batch, self.model, self.generator)
        jobs = self.sampler.update_jobs(batch, self.model, self.generator)
        for number, job in enumerate(jobs):
            stream = self._streams[number % len(self._streams)]
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                job()
        loss, scores, gradients = self.gradient_step.gradients(batch, negatives)
        adam = self.gradient_step.adam
        adam.accumulate(gradients)
        if self.tracer is not None:  # while the cache updates, which take longer, go on
            self.tracer.observe(negatives, scores, gradients, adam.summed)
        for stream in self._streams[: len(jobs)]:
            main.wait_stream(stream)
        adam.apply(gradients)
        self.sampler.learn(batch, negatives, scores)
        self.total += loss

    def _next_batch(self) -> Batch:
        """Gather the batch at the place the device has reached, and move that place on."""
        from nscaching.training import gpu_kernels

        parts = gpu_kernels.gather_batch(self._order, self._start, self.columns, self.batch_size)
        self._start += self.batch_size
        return Batch(*parts.unbind(0))


def make_executor(parts: StepParts) -> Executor:
    """Return the fastest executor the device has; a graph needs the kernels, which never wait."""
    on_gpu = parts.columns.device.type == "cuda" and HAVE_TRITON
    return GraphExecutor(parts) if on_gpu else Executor(parts)
