"""Self-adversarial negatives (Self-Adv, the RotatE paper): uniform ones, weighted by the model."""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.sampling.base import Batch, Candidates, Sampler, answered


class SelfAdversarialSampler(Sampler):
    """k uniform entities with weights softmax(temperature * score), through which nothing flows."""

    name = "self-adversarial"
    usual_negatives = 16
    own_options = frozenset({"adversarial_temperature", "pool"})
    reads_other_rows = False

    def sample(self, batch: Batch, generator: torch.Generator) -> Candidates:
        """Draw a side, then entities."""
        replaces_head, targets, rows = self.questions(batch, generator)
        if self.options.pool:
            return self.shared(replaces_head, targets, rows, generator)
        ids = self.uniform_candidates(replaces_head, rows, self.negatives, generator)
        return answered(replaces_head, targets, ids)

    def weigh(self, candidates: Candidates, scores: Tensor) -> Tensor:
        """Weight negatives by a softmax of their scores; a row without any has no weights."""
        logits = self.options.adversarial_temperature * scores[:, 1:]
        there = candidates.negatives >= 0
        if candidates.pool_weights is not None:
            there = torch.cat([there, candidates.pool_weights > 0], dim=1)
        return logits.masked_fill(~there, -torch.inf).softmax(1).nan_to_num(0.0)
