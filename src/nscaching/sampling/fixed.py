"""Samplers with a fixed distribution: uniform, Bernoulli (paper, Section 2.2.1), all entities.

Self-adversarial negatives (Self-Adv, the RotatE paper) are Bernoulli's, weighted by the model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph
from nscaching.sampling.base import Batch, Candidates, Sampler, answered


class BernoulliSampler(Sampler):
    """A uniform entity; the head is replaced with probability tph / (tph + hpt)."""

    name = "bernoulli"
    own_options = frozenset({"pool"})
    reads_other_rows = False
    both_sides_possible = True

    def sample(self, batch: Batch, generator: torch.Generator) -> Candidates:
        """Draw a side, then entities; for both sides each stands for its share of all entities."""
        replaces_head, targets, rows = self.questions(batch, generator)
        if self.options.pool:
            return self.shared(replaces_head, targets, rows, generator)
        ids = self.uniform_candidates(replaces_head, rows, self.negatives, generator)
        if not self.both_sides:
            return answered(replaces_head, targets, ids)
        ids = ids.masked_fill(ids == targets.unsqueeze(1), -1)
        weights = (ids >= 0) * (self.num_entities / self.negatives)
        return answered(replaces_head, targets, ids, weights)


class UniformSampler(BernoulliSampler):
    """A uniform entity; head and tail are replaced equally often."""

    name = "uniform"

    def _head_probability(self, graph: KnowledgeGraph) -> Tensor:
        return torch.full((graph.num_relations,), 0.5)


class SelfAdversarialSampler(BernoulliSampler):
    """k uniform entities with weights softmax(temperature * score), through which nothing flows."""

    name = "self-adversarial"
    usual_negatives = 16
    own_options = frozenset({"adversarial_temperature", "pool"})
    both_sides_possible = False

    def weigh(self, candidates: Candidates, scores: Tensor) -> Tensor:
        """Weight negatives by a softmax of their scores; a row without any has no weights."""
        logits = self.options.adversarial_temperature * scores[:, 1:]
        there = candidates.negatives >= 0
        if candidates.pool_weights is not None:
            there = torch.cat([there, candidates.pool_weights > 0], dim=1)
        return logits.masked_fill(~there, -torch.inf).softmax(1).nan_to_num(0.0)


class AllEntities(Sampler):
    """Every entity is a candidate of both questions of every triple, for the softmax loss."""

    name = "all"
    both_sides_possible = True
    needs_both_sides = True

    def sample(self, batch: Batch, generator: torch.Generator) -> Candidates:
        """Return the questions; there is nothing to draw."""
        replaces_head, targets, _ = self.questions(batch, generator)
        nothing = torch.empty(len(targets), 0, device=self.device)
        return Candidates(replaces_head, targets.unsqueeze(1), nothing, all_entities=True)
