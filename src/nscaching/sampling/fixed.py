"""Samplers with a fixed distribution: uniform and Bernoulli (paper, Section 2.2.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph
from nscaching.sampling.base import Batch, Negatives, Sampler, Scorer, even_weights


class BernoulliSampler(Sampler):
    """A uniform entity; the head is replaced with probability tph / (tph + hpt)."""

    name = "bernoulli"

    def reads_only_its_rows(self, scorer: Scorer) -> bool:
        """Tell that drawing reads nothing of the model."""
        return True

    def sample(self, batch: Batch, scorer: Scorer, generator: torch.Generator) -> Negatives:
        """Draw a side, then an entity."""
        replaces_head = self.draw_sides(batch, self.negatives, generator)
        entities, valid = self.uniform_negatives(batch, replaces_head, generator)
        return Negatives(entities, replaces_head, even_weights(valid))


class UniformSampler(BernoulliSampler):
    """A uniform entity; head and tail are replaced equally often."""

    name = "uniform"

    def _head_probability(self, graph: KnowledgeGraph) -> Tensor:
        return torch.full((graph.num_relations,), 0.5)
