"""One gradient step: gather the rows of a batch, take the loss, apply Adam.

Where the scoring function has a kernel for it, one pass gives loss and gradients. Else the rows of
the positives and negatives are gathered once, and autograd runs on those small tensors only. Either
way no gradient has the size of a table.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nscaching.losses import Loss
from nscaching.models import EmbeddingModel
from nscaching.optim import DenseAdam, Gradients
from nscaching.sampling import Batch, Negatives

#: Told of negatives, scores, gradient rows, and their sums by row where there are such.
Observe = Callable[[Negatives, Tensor, Gradients, dict[str, Tensor]], None]


class GradientStep:
    """The loss of a batch and its gradients, applied to the two tables of a model."""

    def __init__(
        self,
        model: EmbeddingModel,
        loss: Loss,
        lr: float,
        weight_decay: float,
        *,
        lazy: bool = False,
    ) -> None:
        self.model = model
        self.loss = loss
        copies = {} if model.compact is None else {"entity": model.compact}
        self.adam = DenseAdam(model.state(), lr, weight_decay, lazy=lazy, copies=copies)

    def __call__(
        self, batch: Batch, negatives: Negatives, observe: Observe | None = None
    ) -> tuple[Tensor, Tensor]:
        """Take one step; return the summed loss and the scores of the negatives (b, k).

        ``observe`` sees negatives, scores and gradients before Adam moves the tables.
        """
        loss, scores, gradients = self.gradients(batch, negatives)
        self.adam.accumulate(gradients)
        if observe is not None:
            observe(negatives, scores, gradients, self.adam.summed)
        self.adam.apply(gradients)
        return loss, scores

    def settle(self, batch: Batch, negatives: Negatives) -> None:
        """Let the entity rows that the step reads make up for steps they have waited in."""
        if self.adam.waits("entity"):
            ids = torch.cat([batch.heads, batch.tails, negatives.entities.reshape(-1)])
            self.adam.settle("entity", ids)

    def gradients(self, batch: Batch, negatives: Negatives) -> tuple[Tensor, Tensor, Gradients]:
        """Return loss, scores of the negatives, and for each table ids and gradient rows.

        Gradients, but not the loss that is reported, carry the importance of each positive.
        """
        loss, scores, gradients = self._plain_gradients(batch, negatives)
        if negatives.importance is not None:
            factor = negatives.importance.unsqueeze(1)
            k = negatives.entities.shape[1]
            factors = {
                "entity": torch.cat([factor, factor, factor.repeat_interleave(k, dim=0)]),
                "relation": factor,
            }
            gradients = {
                name: (ids, rows * factors[name]) for name, (ids, rows) in gradients.items()
            }
        return loss, scores, gradients

    def _plain_gradients(
        self, batch: Batch, negatives: Negatives
    ) -> tuple[Tensor, Tensor, Gradients]:
        entity, relation = self.model.entity, self.model.relation
        count = len(batch.heads)
        entity_ids = torch.cat([batch.heads, batch.tails, negatives.entities.reshape(-1)])
        fused = self.model.scoring.pair_gradients(
            entity,
            relation,
            (batch.heads, batch.relations, batch.tails),
            (negatives.entities, negatives.replaces_head, negatives.weight),
            self.loss.margin,
        )
        if fused is not None:
            rows = {
                "entity": (entity_ids, fused.entity_rows),
                "relation": (batch.relations, fused.relation_rows),
            }
            return fused.loss, fused.scores, rows
        entity_rows = entity[entity_ids].requires_grad_()
        r = relation[batch.relations].requires_grad_()

        h, t = entity_rows[:count], entity_rows[count : 2 * count]
        n = entity_rows[2 * count :].view(*negatives.entities.shape, -1)
        positive = self.model.scoring.score(h, r, t)
        replaces_head = negatives.replaces_head.unsqueeze(-1)
        negative = self.model.scoring.score(
            torch.where(replaces_head, n, h.unsqueeze(1)),
            r.unsqueeze(1),
            torch.where(replaces_head, t.unsqueeze(1), n),
        )
        loss = self.loss(positive, negative, negatives.weight)
        entity_gradient, relation_gradient = torch.autograd.grad(loss, [entity_rows, r])

        gradients = {
            "entity": (entity_ids, entity_gradient),
            "relation": (batch.relations, relation_gradient),
        }
        return loss.detach(), negative.detach(), gradients
