"""What the negatives of an epoch were worth: drawn, with a loss, repeated, false.

A step only writes down what it drew, in one number a negative, which costs next to nothing and can
be part of a CUDA graph. The counting is done for many steps at once, between two steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph
from nscaching.kernels.availability import HAVE_NUMBA, HAVE_TRITON
from nscaching.kernels.cuda_graphs import Replayed
from nscaching.losses import Loss
from nscaching.sampling import Batch, Negatives
from nscaching.training.tracing.facts import HELD_OUT, KNOWN, Facts
from nscaching.training.tracing.repeats import RepeatWindow

#: The logistic loss is never zero: from this loss on a negative counts as one that teaches. It is
#: that of a negative which the model holds for true with a probability of one in a hundred.
LEAST_LOGISTIC_LOSS = 0.01
_LEAST_SCORE = math.log(math.expm1(LEAST_LOGISTIC_LOSS))
#: Negatives written down before they are counted.
_BUFFER = 1 << 18
#: Parts of an epoch whose counting is kept for replay on a GPU; larger graphs have more of them.
_MOST_REPLAYED = 8
#: What is counted, in the order of the tensor that holds it.
COUNTED = ("drawn", "with_loss", "followed", "repeated", "known", "held_out")


class NegativeCounters:
    """The counters of one epoch, and the repeat window that outlasts it."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        facts: Facts,
        columns: Tensor,
        loss: Loss,
        batch_size: int,
        make_window: Callable[[int], RepeatWindow],
    ) -> None:
        self.facts, self.columns = facts, columns
        self.loss, self.batch_size = loss, batch_size
        self.num_entities = graph.num_entities
        self._make_window = make_window
        self.window: RepeatWindow | None = None  # made with the first negatives
        device = columns.device
        self._on_cpu = HAVE_NUMBA and device.type == "cpu"
        self._on_gpu = HAVE_TRITON and device.type == "cuda"
        self._order = torch.empty(0, dtype=torch.int64, device=device)
        self._replayed: dict[tuple[int, int], Replayed] = {}
        self.counts = torch.zeros(len(COUNTED), dtype=torch.int64, device=device)
        self._codes = torch.empty(0, 0, dtype=torch.int64, device=device)
        self._at = torch.zeros((), dtype=torch.int64, device=device)
        self._finished = torch.zeros((), dtype=torch.int32, device=device)
        self._offsets = torch.arange(batch_size, device=device)
        self._counted = self._written = 0  # places of the epoch, known without asking the device

    def begin_epoch(self, order: Tensor, first_step: int) -> None:
        """Take the order of an epoch's triples; steps before ``first_step`` are counted already."""
        if self._on_gpu and len(self._order) == len(order):
            self._order.copy_(order)  # it stays where replayed counting reads it
        else:
            self._order = order.clone() if self._on_gpu else order
            self._replayed.clear()
        self._counted = self._written = first_step * self.batch_size
        self._at.zero_()

    # Within a step -------------------------------------------------------------------------------

    def write_down(self, negatives: Negatives, scores: Tensor, rows: Tensor) -> None:
        """Keep what a step drew; ``rows`` are its entity gradients, those of negatives last."""
        count, k = negatives.entities.shape
        if self._codes.shape[1] != k:
            self._follow(k)
        if self._on_cpu:
            self._write_on_cpu(negatives, scores, rows[-count * k :])
            return
        if self._on_gpu:
            self._write_on_gpu(negatives, scores, rows[-count * k :])
            return
        exists = negatives.weight > 0
        teaches = self._teaches(scores, rows[-count * k :].view(count, k, -1)) & exists
        # One number says it all: exists, teaches, replaces the head, and which entity.
        codes = torch.add(negatives.entities, negatives.replaces_head, alpha=self.num_entities)
        codes.add_(teaches, alpha=2 * self.num_entities)
        codes.add_(exists, alpha=4 * self.num_entities)
        self._codes.index_copy_(0, self._offsets[:count] + self._at, codes)
        self._at += count

    def _write_on_cpu(self, negatives: Negatives, scores: Tensor, rows: Tensor) -> None:
        from nscaching.training.tracing import cpu_kernels

        count, here = len(scores), self._written - self._counted
        kernel: Any = cpu_kernels.write_codes
        inputs = (negatives.entities, negatives.replaces_head, negatives.weight, scores, rows)
        kernel(
            *(tensor.numpy() for tensor in inputs),
            _LEAST_SCORE,
            self.loss.margin is None,
            self.num_entities,
            self._codes[here : here + count].numpy(),
        )

    def _write_on_gpu(self, negatives: Negatives, scores: Tensor, rows: Tensor) -> None:
        from nscaching.training.tracing import gpu_kernels

        least = _LEAST_SCORE if self.loss.margin is None else None
        places = (self.num_entities, self._at, self._finished, self._codes)
        gpu_kernels.write_codes(negatives, scores, rows, least, *places)

    def _teaches(self, scores: Tensor, gradient: Tensor) -> Tensor:
        """Tell which negatives have a loss. Shapes: (b, k), (b, k, width) -> (b, k)."""
        if self.loss.margin is None:
            return scores > _LEAST_SCORE
        return (gradient != 0).any(2)  # the pair's loss is zero just where this is

    def _follow(self, k: int) -> None:
        """Make room for k negatives a triple; the first step does it, and a change of sampler."""
        steps = max(1, _BUFFER // (self.batch_size * k))
        self._codes = self._codes.new_zeros(steps * self.batch_size, k)
        self._replayed.clear()
        if self.window is None or self.window.negatives != k:
            self.window = self._make_window(k)

    # Between two steps ---------------------------------------------------------------------------

    def after_step(self) -> None:
        """Count what is written down, once the room for it is used up."""
        self._written = min(self._written + self.batch_size, len(self._order))
        if self._written - self._counted + self.batch_size > len(self._codes):
            self.count()

    def count(self) -> None:
        """Count what is written down."""
        if self._written == self._counted:
            return
        window = self.window
        assert window is not None
        triples = self._order[self._counted : self._written]
        if self._on_cpu:
            self._count_on_cpu(triples, window)
        elif self._on_gpu:
            self._count_on_gpu(triples, window)
        else:
            self._count_on_device(triples, window, self._counted)
        self._counted = self._written
        self._at.zero_()

    def _count_on_cpu(self, triples: Tensor, window: RepeatWindow) -> None:
        from nscaching.training.tracing import cpu_kernels

        assert self.facts.by_pair is not None
        kernel: Any = cpu_kernels.count_draws
        kernel(
            self._codes[: len(triples)].numpy(),
            triples.numpy(),
            self.columns[3:].numpy(),
            self.facts.first_tail,
            *self.facts.by_pair,
            self.num_entities,
            *(part.numpy() for part in (window.place, window.past, window.now, self.counts)),
        )

    def _count_on_gpu(self, triples: Tensor, window: RepeatWindow) -> None:
        """Replay the counting of this part of an epoch: it is many small kernels."""
        part = self._counted, self._written
        work = partial(self._count_on_device, triples, window, self._counted)
        if part not in self._replayed and len(self._replayed) >= _MOST_REPLAYED:
            work()
        else:
            self._replayed.setdefault(part, Replayed(work))()

    def _count_on_device(self, triples: Tensor, window: RepeatWindow, first: int) -> None:
        size = len(triples)
        bits, entities = (
            torch.div(self._codes[:size], self.num_entities, rounding_mode="floor"),
            self._codes[:size] % self.num_entities,
        )
        replaces_head, teaches, exists = ((bits & bit) > 0 for bit in (1, 2, 4))
        kinds = self.facts.kinds(Batch.of(self.columns, triples), entities, replaces_head)
        keys = entities + replaces_head * self.num_entities
        counts = [exists.sum(), teaches.sum()]
        counts += list(window.count(triples, keys, exists, first))
        counts += [((kinds == kind) & exists).sum() for kind in (KNOWN, HELD_OUT)]
        self.counts += torch.stack(counts)

    def end_epoch(self, epoch: int) -> None:
        """Begin the counts of the next epoch, once those of this one are read."""
        self.counts.zero_()
        if self.window is not None:
            self.window.end_epoch(epoch)

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold; everything is counted first."""
        self.count()
        kept = {"counts": self.counts}
        if self.window is not None:
            kept |= {f"window.{name}": part for name, part in self.window.state().items()}
        return kept

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        self.counts.copy_(state["counts"])
        if "window.now" in state:
            self.window = self._make_window(state["window.now"].shape[1])
            self._replayed.clear()
            self.window.load_state(
                {name[7:]: part for name, part in state.items() if name.startswith("window.")}
            )
