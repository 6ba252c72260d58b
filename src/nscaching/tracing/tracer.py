"""The observer of a run: it sees every step, writes a line an epoch, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.losses import Loss
from nscaching.sampling import Negatives, NSCachingSampler, Sampler
from nscaching.scoring import EmbeddingModel
from nscaching.tracing.counters import NegativeCounters
from nscaching.tracing.facts import Facts
from nscaching.tracing.gradients import BatchNorms
from nscaching.tracing.looks import Line, look_at_row, look_at_triple
from nscaching.tracing.names import find_row, find_triple
from nscaching.tracing.options import TraceOptions
from nscaching.tracing.repeats import RepeatWindow

#: The gradient norm is taken in each first of so many steps of an epoch.
NORM_EVERY = 8


@dataclass(frozen=True)
class Settings:
    """What a tracer must know of its run besides the options of the trace."""

    batch_size: int
    epochs: int
    look_every: int  #: epochs between two looks at rows and triples
    seed: int


class Tracer:
    """Counts what the negatives of a run are worth, and looks into its cache."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        options: TraceOptions,
        settings: Settings,
        loss: Loss,
        columns: Tensor,
    ) -> None:
        self.graph, self.options, self.settings, self.loss = graph, options, settings, loss
        self.rows = [find_row(graph, text) for text in options.trace_row]
        self.triples = {text: find_triple(graph, text) for text in options.trace_triple}
        device = columns.device
        self.facts = Facts(graph, device)
        self.counters = NegativeCounters(
            graph,
            self.facts,
            columns,
            loss,
            settings.batch_size,
            lambda k: RepeatWindow(
                len(graph.train), k, options.trace_window, settings.seed, device
            ),
        )
        sizes = {"entity": graph.num_entities, "relation": graph.num_relations}
        self.norms = BatchNorms(sizes, device)
        self._step = 0

    def check_sampler(self, sampler: type[Sampler]) -> None:
        """Refuse to show cache rows of a sampler that keeps none."""
        if self.rows and not issubclass(sampler, NSCachingSampler):
            raise UserError(
                f"trace_row shows a row of the cache, and the sampler {sampler.name} has none; "
                "leave trace_row out, or choose sampler nscaching."
            )

    # Steps ---------------------------------------------------------------------------------------

    def begin_epoch(self, order: Tensor, first_step: int) -> None:
        """Get ready for the steps of an epoch from ``first_step`` on."""
        self._step = first_step
        self.counters.begin_epoch(order, first_step)

    def takes_norm(self) -> bool:
        """Tell whether the coming step takes the norm of its gradient, which not every one does."""
        return self._step % NORM_EVERY == 0

    def observe(
        self, negatives: Negatives, scores: Tensor, gradients: Mapping[str, tuple[Tensor, Tensor]]
    ) -> None:
        """See a step before its gradients are applied; on CUDA this is part of its graph."""
        self.counters.write_down(negatives, scores, gradients["entity"][1])
        if self.takes_norm():
            self.norms.add(gradients)

    def after_step(self) -> None:
        """Go on to the next step; now and then, count."""
        self._step += 1
        self.counters.after_step()

    # Epochs --------------------------------------------------------------------------------------

    def end_epoch(self, epoch: int, sampler: Sampler) -> Line:
        """Return the line of an epoch; epochs count from 1 here, as in ``metrics.jsonl``."""
        counts = self.counters.end_epoch(epoch)
        drawn, followed = counts["drawn"], counts["followed"]
        line: Line = {
            "event": "epoch",
            "epoch": epoch,
            "negatives": drawn,
            "nonzero_loss": _share(counts["with_loss"], drawn),
            "repeated": _share(counts["repeated"], followed),
            "gradient_norm": self.norms.take(),
            "known_sampled": _share(counts["known"], drawn),
            "false_sampled": _share(counts["held_out"], drawn),
            "known_cached": None,
            "false_cached": None,
        }
        if isinstance(sampler, NSCachingSampler):
            held, known, held_out = self.facts.in_cache(sampler).tolist()
            line |= {"known_cached": _share(known, held), "false_cached": _share(held_out, held)}
        return line

    def look(self, epoch: int, model: EmbeddingModel, sampler: Sampler) -> list[Line]:
        """Return lines about the chosen rows and triples, in the epochs in which they are due."""
        due = epoch % self.settings.look_every == 0 or epoch == self.settings.epochs
        if not due:
            return []
        lines = []
        if isinstance(sampler, NSCachingSampler):
            seed = self.settings.seed
            lines = [
                look_at_row(self.graph, model, sampler, row, epoch, seed) for row in self.rows
            ]
        for text, triple in self.triples.items():
            lines += look_at_triple(self.graph, model, self.loss, text, triple, epoch)
        return lines

    # Checkpoints ---------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold."""
        return {**self.counters.state(), "norms": self.norms.sums}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        self.counters.load_state(state)
        self.norms.sums.copy_(state["norms"])


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
