"""The observer of a run: it sees every step, writes a line per epoch, and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.models import EmbeddingModel
from nscaching.optim import Gradients
from nscaching.options import OptionGroup, Options
from nscaching.sampling import SAMPLERS, Candidates, Sampler
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.training.tracing.counters import NegativeCounters
from nscaching.training.tracing.gradients import BatchNorms
from nscaching.training.tracing.snapshots import (
    Line,
    example_rows,
    find_row,
    find_triple,
    recall_of_the_hardest,
    row_snapshot,
    triple_snapshot,
)

if TYPE_CHECKING:
    from nscaching.training.config import TrainConfig

#: The gradient norm is taken in each first of so many steps of an epoch.
NORM_EVERY = 16

_trace = OptionGroup("Trace")


@dataclass(kw_only=True)
class TraceOptions(Options):
    """What is observed while a run trains; nothing of it changes what is learnt."""

    trace: bool = _trace(
        False, "Write statistics of the negatives of each epoch into trace.jsonl; costs little."
    )
    trace_row: tuple[str, ...] = _trace(
        (),
        "Show this cache row by name, 'HEAD|RELATION|?' or '?|RELATION|TAIL'; repeatable. "
        "By default a row of each of the three most frequent relations.",
    )
    trace_triple: tuple[str, ...] = _trace(
        (), "Also take the gradient norms over all negatives of 'HEAD|RELATION|TAIL'; repeatable."
    )
    trace_every: int | None = _trace(
        None,
        "Epochs between snapshots of those rows and triples; by default those between validations.",
        low=1,
    )
    trace_window: int = _trace(
        20, "A negative is repeated if its triple had it within so many epochs before.", low=1
    )

    def is_traced(self) -> bool:
        """Tell whether anything is to be observed: a row or a triple asks for it too."""
        return self.trace or bool(self.trace_row) or bool(self.trace_triple)


class Tracer:
    """Counts what the negatives of a run are worth, and takes snapshots of its cache."""

    def __init__(
        self, graph: KnowledgeGraph, config: TrainConfig, loss: Any, columns: Tensor
    ) -> None:
        self.graph, self.config, self.loss = graph, config, loss
        keeps_cache = issubclass(SAMPLERS[config.sampler], NSCachingSampler)
        if config.trace_row and not keeps_cache:
            raise UserError(
                f"trace_row shows a row of the cache, and the sampler {config.sampler} has none; "
                "do without trace_row, or choose sampler nscaching."
            )
        self.rows = [find_row(graph, text) for text in config.trace_row]
        if not config.trace_row and keeps_cache:
            self.rows = example_rows(graph)
        self.triples = {text: find_triple(graph, text) for text in config.trace_triple}
        self.counters = NegativeCounters(graph, config, loss, columns)
        sizes = {"entity": graph.num_entities, "relation": 2 * graph.num_relations}
        self.norms = BatchNorms(sizes, columns.device)
        self.lines: list[Line] = []  #: all that was seen, as in ``trace.jsonl``
        self._step = 0

    def begin_epoch(self, order: Tensor, first_step: int) -> None:
        """Get ready for the steps of an epoch from ``first_step`` on."""
        self._step = first_step
        self.counters.begin_epoch(order, first_step)

    def takes_norm(self) -> bool:
        """Tell whether the coming step takes the norm of its gradient, which not every one does."""
        return self._step % NORM_EVERY == 0

    def observe(self, candidates: Candidates, scores: Tensor, gradients: Gradients) -> None:
        """See a step before its gradients are applied; on CUDA this is part of its graph.

        Shape of scores: (q, 1 + k), of the true entity and the candidates.
        """
        self.counters.write(candidates.negatives, candidates.replaces_head, scores)
        if self.takes_norm():
            self.norms.add(gradients)

    def after_step(self) -> None:
        """Count now and then, between two steps."""
        self._step += 1
        self.counters.after_step()

    def end_epoch(self, epoch: int, model: EmbeddingModel, sampler: Sampler) -> list[Line]:
        """Return the lines of an epoch, counted from 1; epoch 0 is what there is before training.

        Snapshots of rows and triples are part of it in the epochs in which they are due.
        """
        lines = [self._count(epoch, model, sampler)] if epoch > 0 else []
        every, seed = self.config.trace_every or self.config.valid_every or 1, self.config.seed
        if epoch % every == 0 or epoch == self.config.epochs:
            if isinstance(sampler, NSCachingSampler):
                parts = self.graph, model, sampler
                lines += [row_snapshot(*parts, row, epoch, seed) for row in self.rows]
            for text, triple in self.triples.items():
                lines += triple_snapshot(self.graph, model, self.loss, text, triple, epoch)
        self.lines += lines
        return lines

    def _count(self, epoch: int, model: EmbeddingModel, sampler: Sampler) -> Line:
        self.counters.count()
        parts = [self.counters.counts, self.norms.sums]
        if isinstance(sampler, NSCachingSampler):
            parts.append(self.counters.facts.in_cache(sampler))
        precise = torch.float32 if parts[0].device.type == "mps" else torch.float64
        # All counts together: a device is waited for once.
        numbers: list[float] = torch.cat([part.to(precise) for part in parts]).tolist()
        drawn, with_loss, followed, repeated, known, held_out, norms, norm_count, *cached = numbers
        self.counters.end_epoch(epoch)
        self.norms.sums.zero_()
        line: Line = {
            "event": "epoch",
            "epoch": epoch,
            "negatives": int(drawn),
            "nonzero_loss": _share(with_loss, drawn),
            "repeated": _share(repeated, followed),
            "gradient_norm": norms / norm_count if norm_count else None,
            "known_sampled": _share(known, drawn),
            "false_sampled": _share(held_out, drawn),
            "known_cached": None,
            "false_cached": None,
            "recall": None,
        }
        if isinstance(sampler, NSCachingSampler):
            held, known, held_out = cached
            line |= {"known_cached": _share(known, held), "false_cached": _share(held_out, held)}
            line["recall"] = recall_of_the_hardest(model, sampler, self.config.seed)
        return line

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold."""
        return {**self.counters.state(), "norms": self.norms.sums}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        self.counters.load_state(state)
        self.norms.sums.copy_(state["norms"])


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
