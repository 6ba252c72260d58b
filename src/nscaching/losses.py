"""Losses: plain functions of scores, the positive first, and of the weights of the others.

A loss takes scores (b, 1 + k) and weights (b, k) and returns its sum over the batch with the
gradient of the scores (b, 1 + k); no kernel knows one. A score of -inf is padding and adds nothing.
For margin and logistic the weights of a positive's negatives add up to one, so one negative per
positive is the paper's objective. For softmax a weight says how many entities a candidate stands
for. Add a loss here in one line of ``LOSSES``.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from nscaching.kernels.registry import register
from nscaching.models.match import Match, MatchGradients, Query, fast_products
from nscaching.models.matches import Dot
from nscaching.options import Options, option

#: Bytes of logits over all entities that are held at once.
LOGIT_BYTES = 1 << 28
#: scores (b, 1 + k), weights (b, k) -> the summed loss () and the gradient of the scores
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class MarginRanking:
    """``[margin - f(pos) + f(neg)]_+`` (paper, eq:distance)."""

    margin: float

    def __call__(self, scores: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the gradient of the scores."""
        gap = (self.margin - scores[:, :1] + scores[:, 1:]).clamp_min(0)
        d_negative = weights * (gap > 0)
        d_positive = -d_negative.sum(1, keepdim=True)
        return (weights * gap).sum(), torch.cat([d_positive, d_negative], dim=1)


@dataclass(frozen=True)
class Logistic:
    """``l(+1, f(pos)) + l(-1, f(neg))``, ``l(a, b) = log(1 + exp(-ab))`` (paper, eq:sematic).

    ``offset`` is added to all scores: distances, which are below zero, need one.
    """

    offset: float = 0.0

    def __call__(self, scores: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the gradient of the scores."""
        signed = scores + self.offset  # few operations: on a GPU each is a kernel
        signed[:, 0].neg_()
        weights = pad(weights, (1, 0), value=1.0)
        loss = (weights * softplus(signed)).sum()
        d_scores = signed.sigmoid_().mul_(weights)
        d_scores[:, 0].neg_()
        return loss, d_scores


@dataclass(frozen=True)
class SoftmaxCrossEntropy:
    """Cross-entropy of the true entity among its candidates: sampled softmax.

    A candidate that stands for w entities counts w times: its logit is ``f + log(w)``. With
    ``smoothing`` that share of the target is spread over all candidates.
    """

    smoothing: float = 0.0

    def __call__(self, scores: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the gradient of the scores."""
        logits = scores + pad(weights.log(), (1, 0))
        total = logits.logsumexp(1, keepdim=True)
        d_scores = (logits - total).exp_()
        loss, target = total - logits[:, :1], 1.0
        if self.smoothing:
            counts = pad(weights, (1, 0), value=1.0) * (scores > -torch.inf)
            spread = self.smoothing * counts / counts.sum(1, keepdim=True)
            target -= self.smoothing
            each = (total - scores).masked_fill(counts == 0, 0.0)
            loss = target * loss + (spread * each).sum(1, keepdim=True)
            d_scores -= spread
        d_scores[:, 0] -= target
        return loss.sum(), d_scores

    def over_all(
        self, match: Match, query: Query, table: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor, MatchGradients]:
        """Return the loss over all entities, the scores of the true ones (q, 1), and gradients.

        A block of entities at a time, with a running log-sum-exp: logits never exist as a whole
        where there is more than one block.
        """
        blocks = list(_blocks(len(query.vectors), table))
        sharp, spread = 1 - self.smoothing, self.smoothing / len(table)
        with fast_products(table.device):
            total = query.vectors.new_full((len(query.vectors), 1), -torch.inf)
            for block in blocks:
                rows, size = _aligned(match, table[block]), block.stop - block.start
                logits = match.forward_all(query, rows)
                total = torch.logaddexp(total, _logsumexp(logits[:, :size]))
            positive = match.forward(query, table, targets.unsqueeze(1))
            parts: list[MatchGradients] = []
            smoothed = torch.zeros_like(total)
            for block in reversed(blocks):  # the logits of the last one are still there
                if block != blocks[-1]:
                    rows, size = _aligned(match, table[block]), block.stop - block.start
                    logits = match.forward_all(query, rows)
                inside = logits[:, :size]
                if self.smoothing:
                    smoothed += inside.sum(1, keepdim=True)
                _softmax_gradient(inside, total, targets, block.start, sharp, spread)
                found = match.backward_all(query, rows, logits)
                parts.insert(0, found._replace(rows=found.rows[:size]))
        loss = (total - sharp * positive - spread * smoothed).sum()
        return loss, positive, _added(parts)


def _aligned(match: Match, rows: Tensor) -> Tensor:
    """Return rows, on a GPU followed by rows of zeros to a multiple of eight.

    The fast kernels of matrix products need that. The scores of those rows are zeros, and zeros
    are what they add to the gradients.
    """
    missing = -len(rows) % 8
    if missing == 0 or rows.device.type != "cuda" or not isinstance(match, Dot):
        return rows
    return pad(rows, (0, 0, 0, missing))


def _added(parts: list[MatchGradients]) -> MatchGradients:
    """Put the gradients of blocks of entities together: queries add up, rows follow each other."""
    if len(parts) == 1:
        return parts[0]
    contexts = [part.context for part in parts if part.context is not None]
    return MatchGradients(
        torch.stack([part.query for part in parts]).sum(0),
        torch.stack(contexts).sum(0) if contexts else None,
        torch.cat([part.rows for part in parts]),
    )


def _plain_softmax_gradient(
    logits: Tensor, total: Tensor, targets: Tensor, first: int, sharp: float, spread: float
) -> Tensor:
    """Turn logits of a block of entities into the gradient of their scores, in place. (q, n)."""
    gradient = logits.sub_(total).exp_()
    if spread:
        gradient -= spread
    inside = (targets >= first) & (targets < first + logits.shape[1])
    place = (targets - first).clamp(0, logits.shape[1] - 1).unsqueeze(1)
    return gradient.scatter_add_(1, place, -sharp * inside.to(logits.dtype).unsqueeze(1))


_softmax_gradient = register(
    "softmax_gradient", _plain_softmax_gradient, gpu="softmax_gpu:softmax_gradient"
)
_logsumexp = register(
    "logsumexp", lambda logits: logits.logsumexp(1, keepdim=True), gpu="softmax_gpu:logsumexp"
)


def _blocks(queries: int, table: Tensor) -> Iterator[slice]:
    """Return the rows of a table in blocks whose logits fit the memory that is set aside."""
    size = max(8, LOGIT_BYTES // (4 * max(1, queries)) // 8 * 8)
    for start in range(0, len(table), size):
        yield slice(start, min(start + size, len(table)))


#: Losses by name, made from the options.
LOSSES: dict[str, Callable[[LossOptions], Loss]] = {
    "margin": lambda options: MarginRanking(options.margin),
    "logistic": lambda options: Logistic(options.offset),
    "softmax": lambda options: SoftmaxCrossEntropy(options.label_smoothing),
}


#: What the option takes: a loss that is added to the registry is found.
_CHOICES: ChainMap[str, Any] = ChainMap({"auto": None}, LOSSES)


@dataclass(kw_only=True)
class LossOptions(Options):
    """What the training minimises."""

    loss: str = option(
        "auto",
        "Loss; auto is margin for TransE, TransH, TransD and RotatE, logistic for the others.",
        group="Model",
        choices=_CHOICES,
    )
    margin: float = option(4.0, "Margin of the margin ranking loss.", group="Model", above=0)
    offset: float = option(
        0.0,
        "Added to the scores in the logistic loss; distances need one, such as 9.",
        group="Model",
    )
    label_smoothing: float = option(
        0.0,
        "Share of the target that the softmax loss spreads over all candidates.",
        group="Model",
        low=0,
        below=1,
    )
    l2: float | None = option(
        None,
        "L2 penalty lambda, a weight decay lambda * batch / |train|; default 0.1 for the semantic "
        "models with the logistic loss, else 0.",
        group="Model",
        low=0,
    )
    n3: float = option(
        0.0, "N3 penalty: cubed norms of the rows of a batch, times this.", group="Model", low=0
    )

    def loss_name(self, usual: str) -> str:
        """Return the loss; ``usual`` is what the scoring function is normally trained with."""
        return usual if self.loss == "auto" else self.loss

    def penalty(self, usual_l2: float, usual_loss: str) -> float:
        """Return the L2 penalty; ``usual_l2`` is what the logistic loss is normally held with."""
        if self.l2 is not None:
            return self.l2
        return usual_l2 if self.loss_name(usual_loss) == "logistic" else 0.0

    def build_loss(self, usual: str) -> Loss:
        """Return the loss; ``usual`` is what the scoring function is normally trained with."""
        return LOSSES[self.loss_name(usual)](self)
