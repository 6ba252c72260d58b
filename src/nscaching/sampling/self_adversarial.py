"""Self-adversarial negatives (Self-Adv, the RotatE paper): uniform ones, weighted by the model."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nscaching.models import Side
from nscaching.sampling.base import Batch, Negatives, Sampler, Scorer


class SelfAdversarialSampler(Sampler):
    """k uniform entities with weights softmax(temperature * score), through which nothing flows."""

    name = "self-adversarial"
    usual_negatives = 16
    own_options = frozenset({"adversarial_temperature"})

    def sample(self, batch: Batch, scorer: Scorer, generator: torch.Generator) -> Negatives:
        """Draw sides and entities, score them with the model as it is, and weight them."""
        replaces_head = self.draw_sides(batch, self.negatives, generator)
        entities, valid = self.uniform_negatives(batch, replaces_head, generator)
        heads, tails = (
            scorer.score_candidates(side, batch.anchor(side), batch.relations, entities)
            for side in (Side.HEAD, Side.TAIL)
        )
        weight = self._weights(torch.where(replaces_head, heads, tails), valid)
        return Negatives(entities, replaces_head, weight)

    def _weights(self, scores: Tensor, valid: Tensor) -> Tensor:
        logits = (self.options.adversarial_temperature * scores).masked_fill(~valid, -math.inf)
        return logits.softmax(1).nan_to_num(0.0)  # a row without a negative has no weights
