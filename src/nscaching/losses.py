"""The two losses of the paper, on a positive score and its k weighted negatives.

Both are summed over the batch. The weights of a positive's negatives add up to one (``1/k`` each,
unless the sampler says otherwise), so one negative a positive is exactly the paper's objective; a
weight of zero masks a negative that does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import softplus

from nscaching.options import Options, option

#: (positive (b,), negative (b, k), weight (b, k)) -> scalar
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def margin_ranking(positive: Tensor, negative: Tensor, weight: Tensor, margin: float) -> Tensor:
    """Sum of ``[margin - f(pos) + f(neg)]_+`` (paper, eq:distance)."""
    return (weight * (margin - positive.unsqueeze(1) + negative).clamp_min(0)).sum()


def logistic(positive: Tensor, negative: Tensor, weight: Tensor) -> Tensor:
    """Sum of ``l(+1, f(pos)) + l(-1, f(neg))``, ``l(a, b) = log(1 + exp(-ab))`` (eq:sematic)."""
    return softplus(-positive).sum() + (weight * softplus(negative)).sum()


@dataclass(kw_only=True)
class LossOptions(Options):
    """What the training minimises."""

    loss: str = option(
        "auto",
        "Loss; auto is margin for the translational models and RotatE, logistic for the others.",
        group="Model",
        choices=("auto", "margin", "logistic"),
    )
    margin: float = option(4.0, "Margin of the margin ranking loss.", group="Model", above=0)
    l2: float = option(
        0.0,
        "L2 penalty lambda; acts as weight decay lambda * batch / |train|.",
        group="Model",
        low=0,
    )

    def build_loss(self, usual: str) -> Loss:
        """Return the loss; ``usual`` is what the scoring function is normally trained with."""
        kind = usual if self.loss == "auto" else self.loss
        if kind == "logistic":
            return logistic
        margin = self.margin
        return lambda positive, negative, weight: margin_ranking(positive, negative, weight, margin)
