"""One gradient step: gather the rows of a batch, take the loss, apply Adam.

The rows of the positives and negatives are gathered once; autograd runs on those small tensors
only, and their gradients are added into a table that is kept. Adam is dense: every parameter moves
in every step, as the paper's does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.losses import Loss
from nscaching.sampling import Batch, Negatives
from nscaching.scoring import EmbeddingModel


class GradientStep:
    """Adam on the two tables of a model; its state goes into checkpoints."""

    def __init__(self, model: EmbeddingModel, loss: Loss, lr: float, weight_decay: float) -> None:
        self.model = model
        self.loss = loss
        parameters = [torch.nn.Parameter(table) for table in model.parameters()]
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        fused = model.device.type in ("cpu", "cuda")
        self.adam = torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay, fused=fused)
        self.gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        self._make_state()

    def __call__(self, batch: Batch, negatives: Negatives) -> tuple[Tensor, Tensor]:
        """Take one step; return the summed loss and the scores of the negatives (b, k)."""
        entity, relation = self.model.entity, self.model.relation
        count = len(batch.heads)
        entity_ids = torch.cat([batch.heads, batch.tails, negatives.entities.reshape(-1)])
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

        for table, ids, rows in zip(
            self.gradients,
            (entity_ids, batch.relations),
            (entity_gradient, relation_gradient),
            strict=True,
        ):
            table.zero_()
            table.index_add_(0, ids, rows)
        self.adam.step()
        return loss.detach(), negative.detach()

    def _make_state(self) -> None:
        """Create Adam's moments now, so that they can be saved and loaded at any time."""
        for parameter in self.adam.param_groups[0]["params"]:
            self.adam.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def state(self) -> dict[str, Tensor]:
        """Return Adam's state as named tensors."""
        return {
            f"{table}.{part}": value
            for table, parameter in zip(
                self.model.state(), self.adam.param_groups[0]["params"], strict=True
            )
            for part, value in self.adam.state[parameter].items()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        for name, mine in self.state().items():
            mine.copy_(state[name])
