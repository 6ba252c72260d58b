"""Gradient norms: of the batches of a run, and of all training pairs of one triple.

A training pair is a positive triple with one negative; its gradient is that of its loss by the
rows of every entity and relation in it (paper, eq:graddist and eq:gradsema). All norms are l2, and
leave the L2 penalty out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching.models import EmbeddingModel, Side
from nscaching.optim import Gradients, RowGradients

#: Negatives whose gradients are held at once.
_BLOCK = 4096
#: Points of a stored distribution.
_POINTS = 60


def score_gradients(loss: Any, scores: Tensor) -> Tensor:
    """Return the gradient of a loss by its scores, every candidate with weight 1. (b, 1 + k)."""
    gradients: Tensor = loss(scores.detach(), torch.ones_like(scores[:, 1:]))[1]
    return gradients


class BatchNorms:
    """Adds up the l2 norms of batch gradients: of the summed loss, over both tables."""

    def __init__(self, sizes: Mapping[str, int], device: torch.device) -> None:
        #: Sum of the norms, and how many there are.
        self.sums = torch.zeros(2, dtype=torch.float32, device=device)
        self._slot = {
            name: torch.zeros(size, dtype=torch.int64, device=device)
            for name, size in sizes.items()
        }

    def add(self, gradients: Gradients) -> None:
        """Take the norm of the gradient of one batch."""
        squares = [self._squared(name, parts) for name, parts in gradients.items()]
        self.sums[0] += torch.stack(squares).sum().sqrt()
        self.sums[1] += 1

    def _squared(self, name: str, parts: list[RowGradients]) -> Tensor:
        """Return the squared norm of the rows, those of the same id added up before."""
        whole = next((part.rows.clone() for part in parts if part.ids is None), None)
        rest = (part.written_out() for part in parts if part.ids is not None)
        some = [(part.ids, part.rows) for part in rest if part.ids is not None]
        ids = torch.cat([ids for ids, _ in some]) if some else None
        if whole is not None:
            for place, rows in some:
                whole.index_add_(0, place, rows)
            return whole.square().sum()
        assert ids is not None
        rows = torch.cat([rows for _, rows in some])
        slots = self._slot[name]
        slots[ids] = torch.arange(len(ids), device=ids.device)  # any of an id's places will do
        return torch.zeros_like(rows).index_add_(0, slots[ids], rows).square().sum()


@dataclass(frozen=True)
class GradientNorms:
    """The norms of a triple's training pairs, ascending; pairs without a loss have 0."""

    norms: np.ndarray

    def share_from(self, bound: float) -> float:
        """Return P(norm >= bound), the CCDF at a bound."""
        return float((self.norms >= bound).mean())

    def ccdf(self, points: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return x and P(norm >= x), x ascending: at every distinct norm, or at a few of them.

        ``points`` are spaced by the logarithm of the share: the few pairs with a large gradient are
        what matters.
        """
        values, first = np.unique(self.norms, return_index=True)
        shares = 1 - first / len(self.norms)
        if points is None or len(values) <= points:
            return values, shares
        wanted = np.geomspace(1, 1 / len(self.norms), points)
        chosen = np.unique(np.abs(shares[None, :] - wanted[:, None]).argmin(1))
        return values[chosen], shares[chosen]

    def as_points(self) -> list[list[float]]:
        """Return the CCDF as a short list of [x, share]."""
        return np.stack(self.ccdf(_POINTS), axis=1).tolist()  # type: ignore[no-any-return]


def gradient_norms(
    model: EmbeddingModel, loss: Any, triple: tuple[int, int, int], side: Side, leave_out: Tensor
) -> GradientNorms:
    """Return the norm of each training pair of a triple, for all entities but some."""
    if side is Side.HEAD and getattr(model, "reciprocal", False):  # (t, r', ?) asks for the head
        head, relation, tail = triple
        triple, side = (tail, relation + len(model.relation) // 2, head), Side.TAIL
    head, relation, tail = triple

    def pair_norms(negatives: Tensor) -> Tensor:
        """Return the norms for some negatives; each pair has its own copy of the rows; (m,)."""
        count = len(negatives)
        h, t = (model.entity[each].expand(count, -1).clone() for each in (head, tail))
        r, n = model.relation[relation].expand(count, -1).clone(), model.entity[negatives].clone()
        leaves = [part.requires_grad_() for part in (h, r, t, n)]
        negative = (n, r, t) if side is Side.HEAD else (h, r, n)
        positives = model.scoring.score(h, r, t)
        scores = model.scoring.score(*negative).unsqueeze(1)
        both = torch.cat([positives.unsqueeze(1), scores], dim=1)
        by_h, by_r, by_t, by_n = torch.autograd.grad(both, leaves, score_gradients(loss, both))
        squares = sum(
            (g.square().sum(1) for g in (by_h, by_r, by_t, by_n)), torch.zeros_like(by_h[:, 0])
        )
        # An entity that stands twice in a pair has one gradient, the sum of both.
        squares = squares + 2 * (by_h * by_n).sum(1) * (negatives == head)
        squares = squares + 2 * (by_t * by_n).sum(1) * (negatives == tail)
        if head == tail:
            squares = squares + 2 * (by_h * by_t).sum(1)
        return squares.clamp_min(0).sqrt()

    allowed = torch.ones(model.num_entities, dtype=torch.bool, device=model.device)
    allowed[leave_out] = False
    parts = map(pair_norms, torch.split(allowed.nonzero().squeeze(1), _BLOCK))
    return GradientNorms(np.sort(torch.cat(list(parts)).cpu().numpy()))
