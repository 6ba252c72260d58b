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

from nscaching.kernels.registry import kernel
from nscaching.models.match import Match, MatchGradients, Query, aligned, fast_products
from nscaching.models.matches import Dot
from nscaching.options import OptionGroup, Options

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
        d_scores = scores + self.offset  # few operations: on a GPU each is a kernel
        of_positive, of_negatives = d_scores[:, 0], d_scores[:, 1:]
        of_positive.neg_()
        losses = softplus(d_scores)
        losses[:, 1:].mul_(weights)
        d_scores.sigmoid_()
        of_positive.neg_()
        of_negatives.mul_(weights)
        return losses.sum(), d_scores


@dataclass(frozen=True)
class SoftmaxCrossEntropy:
    """Cross-entropy of the true entity among its candidates: sampled softmax.

    A candidate that stands for w entities counts w times: its logit is ``f + log(w)``. With
    ``smoothing`` that share of the target is spread over all candidates.
    """

    smoothing: float = 0.0

    def __call__(self, scores: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the gradient of the scores."""
        logits = torch.zeros_like(scores)  # few passes: with a pool it has millions of numbers
        of_others = logits[:, 1:]
        torch.log(weights.expand_as(of_others), out=of_others)
        highest = logits.add_(scores).amax(1, keepdim=True)
        d_scores = logits.sub_(highest).exp_()
        sums = d_scores.sum(1, keepdim=True)
        d_scores.div_(sums)
        total = highest + sums.log_()
        loss, target = total - scores[:, :1], 1.0
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
        over = OverAll(self, match, query, table)
        total = over.total()
        positive = match.forward(query, table, targets.unsqueeze(1))
        found = over.gradients(total, targets)
        return over.loss(total, positive, over.smoothed).sum(), positive, found

    def summary(self, scores: Tensor, weights: Tensor) -> Tensor:
        """Return what others must know of some of the candidates: their logarithm of a sum of exp.

        With smoothing also how many entities they stand for, and the sum of those entities' scores.
        Shapes: (b, 1 + k), (b, k) -> (1 or 3, b).
        """
        scores = scores[:, 1:]
        total = (scores + weights.log()).logsumexp(1)
        if not self.smoothing:
            return total.unsqueeze(0)
        sums = (weights * scores).masked_fill(weights == 0, 0.0).sum(1)
        return torch.stack([total, weights.sum(1), sums])

    def from_summaries(
        self, scores: Tensor, weights: Tensor, summaries: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of each question and the gradient of the scores of some candidates.

        ``summaries`` are those of all candidates. Shapes: (b, 1 + k), (b, k), (parts, 1 or 3, b).
        """
        positive = scores[:, 0]
        total = torch.cat([positive.unsqueeze(0), summaries[:, 0]]).logsumexp(0)
        d_scores = (scores + pad(weights.log(), (1, 0)) - total.unsqueeze(1)).exp_()
        loss, target = total - positive, 1.0
        if self.smoothing:
            count = 1 + summaries[:, 1].sum(0)
            share, target = self.smoothing / count, 1 - self.smoothing
            loss = target * loss + share * (count * total - positive - summaries[:, 2].sum(0))
            d_scores -= share.unsqueeze(1) * pad(weights, (1, 0), value=1.0)
        d_scores[:, 0] -= target
        return loss, d_scores


class OverAll:
    """The softmax over all rows of a table, or over one of the parts that it is cut into."""

    def __init__(
        self,
        loss: SoftmaxCrossEntropy,
        match: Match,
        query: Query,
        table: Tensor,
        parts: int = 1,
        num_entities: int | None = None,
    ) -> None:
        self._match, self._query, self._table = match, query, table
        self._smoothing = loss.smoothing
        self._sharp, self._spread = (
            1 - loss.smoothing,
            loss.smoothing / (num_entities or len(table)),
        )
        self._blocks = list(_blocks(len(query.vectors), table, LOGIT_BYTES // parts))
        self._last = self._rows = table[:0]
        #: Sum of the scores of each question (q, 1), where the loss is smoothed.
        self.smoothed = query.vectors.new_zeros(len(query.vectors), 1)

    def total(self) -> Tensor:
        """Return the logarithm of the sum of exp of each question's scores. Shape: (q, 1)."""
        total = self._query.vectors.new_full((len(self._query.vectors), 1), -torch.inf)
        with fast_products(self._table.device):
            for block in self._blocks:
                self._rows = _aligned(self._match, self._table[block])
                self._last = self._match.forward_all(self._query, self._rows)
                logits = self._last[:, : block.stop - block.start]
                total = torch.logaddexp(total, logsumexp(logits))
        return total

    def gradients(self, total: Tensor, targets: Tensor) -> MatchGradients:
        """Return the gradients, with the total over all parts; targets elsewhere are outside."""
        match, query, logits, rows = self._match, self._query, self._last, self._rows
        self._last = self._rows = self._table[:0]
        parts: list[MatchGradients] = []
        with fast_products(self._table.device):
            for block in reversed(self._blocks):  # the logits of the last one are still there
                size = block.stop - block.start
                if block != self._blocks[-1]:
                    rows = _aligned(match, self._table[block])
                    logits = match.forward_all(query, rows)
                inside = logits[:, :size]
                if self._smoothing:
                    self.smoothed += inside.sum(1, keepdim=True)
                softmax_gradient(inside, total, targets, block.start, self._sharp, self._spread)
                logits[:, size:] = 0
                found = match.backward_all(query, rows, logits)
                parts.insert(0, found._replace(rows=found.rows[:size]))
        return _added(parts)

    def loss(self, total: Tensor, positive: Tensor, smoothed: Tensor) -> Tensor:
        """Return the loss of each question, from sums over all parts. Shapes: (q, 1) each."""
        return total - self._sharp * positive - self._spread * smoothed


def _aligned(match: Match, rows: Tensor) -> Tensor:
    """Return rows as fast products take them: on a GPU followed by some that do not count."""
    return aligned(rows) if rows.device.type == "cuda" and isinstance(match, Dot) else rows


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


@kernel(cpu="all_pairs_cpu", gpu="all_pairs_gpu")
def softmax_gradient(
    logits: Tensor, total: Tensor, targets: Tensor, first: int, sharp: float, spread: float
) -> Tensor:
    """Turn logits of a block of entities into the gradient of their scores, in place. (q, n)."""
    gradient = logits.sub_(total).exp_()
    if spread:
        gradient -= spread
    inside = (targets >= first) & (targets < first + logits.shape[1])
    place = (targets - first).clamp(0, logits.shape[1] - 1).unsqueeze(1)
    return gradient.scatter_add_(1, place, -sharp * inside.to(logits.dtype).unsqueeze(1))


@kernel(cpu="all_pairs_cpu", gpu="all_pairs_gpu")
def logsumexp(logits: Tensor) -> Tensor:
    """Return the log-sum-exp of each row. Shapes: (q, n) -> (q, 1)."""
    return logits.logsumexp(1, keepdim=True)


def _blocks(queries: int, table: Tensor, logit_bytes: int) -> Iterator[slice]:
    """Return the rows of a table in blocks whose logits fit the memory that is set aside."""
    size = max(8, logit_bytes // (4 * max(1, queries)) // 8 * 8)
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
_model = OptionGroup("Model")


@dataclass(kw_only=True)
class LossOptions(Options):
    """What the training minimises."""

    loss: str = _model(
        "auto",
        "Loss; auto is margin for TransE, TransH, TransD and RotatE, logistic for the others.",
        choices=_CHOICES,
    )
    margin: float = _model(4.0, "Margin of the margin ranking loss.", above=0)
    offset: float = _model(
        0.0, "Added to the scores in the logistic loss; distances need one, such as 9."
    )
    label_smoothing: float = _model(
        0.0,
        "Share of the target that the softmax loss spreads over all candidates.",
        low=0,
        below=1,
    )
    l2: float | None = _model(
        None,
        "L2 penalty lambda, a weight decay lambda * batch / |train|; default 0.1 for the semantic "
        "models with the logistic loss, else 0.",
        low=0,
    )
    n3: float = _model(0.0, "N3 penalty: cubed norms of the rows of a batch, times this.", low=0)
    relation_prediction: float = _model(
        0.0,
        "Weight of an auxiliary objective: the cross-entropy of the true relation among all, given "
        "head and tail; for distmult, complex, simple, and quate with --no-normalize.",
        low=0,
    )

    subsampling: bool = _model(
        False,
        "Weight each fact by 1 / sqrt(#(h, r) + #(r, t)), the counts of its pairs in training, so "
        "that common ones count less; for the logistic and the margin loss.",
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
