"""What a model is worth on a split, and the measure on valid that decides which one is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch

from nscaching.evaluation import RankingReport, labelled_triples
from nscaching.evaluation.classification import LabelledTriples, best_accuracy
from nscaching.evaluation.ranking import Count, Prepared
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import Ids
from nscaching.kernels.hashing import hashed_bits
from nscaching.models import EmbeddingModel
from nscaching.training.config import TrainConfig

Advance = Callable[[int], None]


class Validation:
    """Ranks splits of a graph; ``select`` names the measure that decides the best epoch."""

    def __init__(
        self, graph: KnowledgeGraph, config: TrainConfig, count: Count | None = None
    ) -> None:
        self.graph, self.select, self._memory_mb = graph, config.select, config.eval_memory
        #: What is ranked in each validation: the same facts for all epochs, seeds and trials.
        self.facts = drawn_facts(graph.valid, config.valid_facts)
        self._count = count
        self._at: torch.Tensor | None = None  #: the labelled triples of valid on the device

    def rank(
        self,
        model: EmbeddingModel,
        split: str,
        progress: Advance | None = None,
        facts: Ids | None = None,
    ) -> RankingReport:
        """Rank one split, or some of its facts, with a model."""
        how: Any = {"memory_mb": self._memory_mb, "count": self._count, "facts": facts}
        if facts is self.facts:
            how["prepared"] = self._prepared
        return RankingReport.of_split(model, self.graph, split, progress=progress, **how)

    def measure(
        self, model: EmbeddingModel, progress: Advance | None = None
    ) -> tuple[dict[str, Any], float]:
        """Return all measures of a model on valid, that of ``select`` among them, and seconds."""
        started = time.monotonic()
        found = self.rank(model, "valid", progress, self.facts).overall()
        if self.select == "accuracy":
            if self._at is None or self._at.device != model.device:
                self._at = torch.from_numpy(self._labelled.triples.copy()).to(model.device)
            given = self._labelled, self.graph.num_relations, self._at
            found["accuracy"] = best_accuracy(model, *given)
        return found, time.monotonic() - started

    @cached_property
    def _prepared(self) -> Prepared:
        """The questions of the facts that each validation ranks, with their known answers."""
        return Prepared(self.graph, self.facts, self._memory_mb)

    @cached_property
    def _labelled(self) -> LabelledTriples:
        """The facts and negatives of valid; drawn once where the data set has no negatives."""
        return labelled_triples(self.graph, "valid")


def drawn_facts(facts: Ids, most: int | None) -> Ids:
    """Return so many of the facts, drawn at random and in their order; all where that is none.

    Those with the smallest hashes: where an update takes some out, the others are drawn again.
    """
    if most is None or most >= len(facts):
        return facts
    head, relation, tail = torch.from_numpy(facts.astype(np.int64)).unbind(1)
    seed = torch.zeros(1, dtype=torch.int64)
    ends = hashed_bits(seed, head * 2**32 + tail, 0, 1).squeeze(1)
    number = hashed_bits(seed, ends + relation, 0, 1).squeeze(1)
    drawn = np.argsort(number.numpy(), kind="stable")[:most]
    return np.asarray(facts[np.sort(drawn)])
