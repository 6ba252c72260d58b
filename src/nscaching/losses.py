"""The two losses of the paper, on a positive score and its k weighted negatives.

Both are summed over the batch. The weights of a positive's negatives add up to one (``1/k`` each,
unless the sampler says otherwise), so one negative a positive is exactly the paper's objective; a
weight of zero masks a negative that does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import softplus

from nscaching.options import Options, option


@dataclass(frozen=True)
class Loss:
    """A loss that kernels can read as data: margin ranking, or logistic where margin is None."""

    margin: float | None

    def __call__(self, positive: Tensor, negative: Tensor, weight: Tensor) -> Tensor:
        """Return the summed loss. Shapes: (b,), (b, k), (b, k) -> ()."""
        if self.margin is None:
            return logistic(positive, negative, weight)
        return margin_ranking(positive, negative, weight, self.margin)


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
    l2: float | None = option(
        None,
        "L2 penalty lambda, a weight decay lambda * batch / |train|; left out, 0.1 for distmult, "
        "complex and simple, else 0.",
        group="Model",
        low=0,
    )

    def penalty(self, usual: float) -> float:
        """Return the L2 penalty; ``usual`` is what the scoring function is normally held with."""
        return usual if self.l2 is None else self.l2

    def build_loss(self, usual: str) -> Loss:
        """Return the loss; ``usual`` is what the scoring function is normally trained with."""
        kind = usual if self.loss == "auto" else self.loss
        return Loss(None if kind == "logistic" else self.margin)
