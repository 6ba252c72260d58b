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

from nscaching.kernels.availability import HAVE_NUMBA, HAVE_TRITON
from nscaching.losses import Loss
from nscaching.models import EmbeddingModel, Side

#: Negatives whose gradients are held at once.
_BLOCK = 4096
#: Points of a stored distribution.
_POINTS = 60


class BatchNorms:
    """Adds up the l2 norms of batch gradients: of the summed loss, over both tables."""

    def __init__(self, sizes: Mapping[str, int], device: torch.device) -> None:
        #: Sum of the norms, and how many there are.
        self.sums = torch.zeros(2, dtype=torch.float32, device=device)
        self._on_cpu = HAVE_NUMBA and device.type == "cpu"
        self._on_gpu = HAVE_TRITON and device.type == "cuda"
        self._square = torch.zeros(1, device=device)
        self._last = {
            name: np.full(size, -1, dtype=np.int32) for name, size in sizes.items() if self._on_cpu
        }

    def add(
        self,
        gradients: Mapping[str, tuple[Tensor, Tensor]],
        summed: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Take the norm of one batch: for each table ids (m,), which may repeat, and their rows.

        ``summed`` may hold tables of the rows added up by id. The sum of squares is then that of
        each row's product with the sum it is part of.
        """
        sums = summed or {}
        if self._on_gpu and len(sums) == len(gradients):
            self._add_on_gpu(gradients, sums)
            return
        squares = [
            (rows * sums[name][ids]).sum() if name in sums else self._squared(name, ids, rows)
            for name, (ids, rows) in gradients.items()
        ]
        self.sums[0] += torch.stack(squares).sum().sqrt()
        self.sums[1] += 1

    def _add_on_gpu(
        self, gradients: Mapping[str, tuple[Tensor, Tensor]], summed: Mapping[str, Tensor]
    ) -> None:
        from nscaching.training.tracing import gpu_kernels

        parts = [(ids, rows, summed[name]) for name, (ids, rows) in gradients.items()]
        gpu_kernels.add_norm(parts, self._square, self.sums)

    def _squared(self, name: str, ids: Tensor, rows: Tensor) -> Tensor:
        if self._on_cpu:
            from nscaching.training.tracing import cpu_kernels

            kernel: Any = cpu_kernels.squared_norm
            arguments = (ids.numpy(), rows.detach().contiguous().numpy(), self._last[name])
            return torch.tensor(kernel(*arguments), dtype=torch.float32)
        ordered, place = ids.sort()
        starts = torch.ones_like(ordered)
        starts[1:] = ordered[1:] != ordered[:-1]
        whole = torch.zeros_like(rows).index_add_(0, starts.cumsum(0) - 1, rows[place])
        return whole.square().sum()


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
    model: EmbeddingModel,
    loss: Loss,
    triple: tuple[int, int, int],
    side: Side,
    leave_out: Tensor,
) -> GradientNorms:
    """Return the norm of each training pair of a triple, for all entities but some."""
    allowed = torch.ones(model.num_entities, dtype=torch.bool, device=model.device)
    allowed[leave_out] = False
    negatives = allowed.nonzero().squeeze(1)
    parts = [
        _pair_norms(model, loss, triple, side, part) for part in torch.split(negatives, _BLOCK)
    ]
    return GradientNorms(np.sort(torch.cat(parts).cpu().numpy()))


def _pair_norms(
    model: EmbeddingModel,
    loss: Loss,
    triple: tuple[int, int, int],
    side: Side,
    negatives: Tensor,
) -> Tensor:
    """Return the norms for some negatives; each pair has its own copy of the rows. Shape: (m,)."""
    count = len(negatives)
    head, relation, tail = triple
    h, t = (model.entity[each].expand(count, -1).clone() for each in (head, tail))
    r, n = model.relation[relation].expand(count, -1).clone(), model.entity[negatives].clone()
    leaves = [part.requires_grad_() for part in (h, r, t, n)]
    negative = (n, r, t) if side is Side.HEAD else (h, r, n)
    positives = model.scoring.score(h, r, t)
    scores = model.scoring.score(*negative).unsqueeze(1)
    total = loss(positives, scores, torch.ones_like(scores))
    by_h, by_r, by_t, by_n = torch.autograd.grad(total, leaves)
    squares = sum(
        (g.square().sum(1) for g in (by_h, by_r, by_t, by_n)), torch.zeros_like(by_h[:, 0])
    )
    # An entity that stands twice in a pair has one gradient, the sum of both.
    squares = squares + 2 * (by_h * by_n).sum(1) * (negatives == head)
    squares = squares + 2 * (by_t * by_n).sum(1) * (negatives == tail)
    if head == tail:
        squares = squares + 2 * (by_h * by_t).sum(1)
    return squares.clamp_min(0).sqrt()
