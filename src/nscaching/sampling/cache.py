"""The cache: N1 entities a row with the score each had when it was put there (as float16).

It knows nothing of scoring functions or relations: the knowledge-graph sampler keeps one for the
(r, t) pairs and one for the (h, r) pairs, the skip-gram sampler one for the nodes. A row is a set:
its entities are distinct. Where there are fewer than N1, the row is padded at its end with -1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from nscaching.kernels.availability import HAVE_NUMBA, HAVE_TRITON
from nscaching.sampling.hashing import hashed_entities, hashed_gumbel, new_seed, unsigned
from nscaching.sampling.known import KnownAnswers
from nscaching.sampling.softmax import LARGEST_SCORE, draw_at, keep_without_replacement

#: (ids of any shape (b, k)) -> scores of the same shape
Score = Callable[[Tensor], Tensor]
PADDING = -1
#: How scores become log weights, in the kernels.
UNIFORM, RAW, QUANTILE, HARDEST = 0, 1, 2, 3
#: Widest row the GPU kernels hold in registers; wider ones take the plain path.
_GPU_WIDTH = 256
#: A fresh row is offered this many draws more than it has places; if that leaves it short, this
#: many times as many.
_FILL_SLACK, _FILL_WIDTH = 16, 8
#: Entries handled at once while the cache is filled or scored anew.
_FILL_BLOCK = 1 << 22


class Cache:
    """``rows`` sets of at most ``size`` entities out of ``num_entities``, with scores."""

    #: The tensors that a checkpoint must hold.
    parts: ClassVar[tuple[str, ...]] = ("ids", "scores")
    #: Whether the kernels may do the work; what they do not know of, a subclass does without them.
    has_kernels: ClassVar[bool] = True

    def __init__(
        self, rows: int, size: int, num_entities: int, rescaling: str, device: torch.device
    ) -> None:
        self.size = min(size, num_entities)
        self.num_entities = num_entities
        self.rescaling = rescaling
        self.ids = torch.full((rows, self.size), PADDING, dtype=torch.int32, device=device)
        self.scores = torch.zeros(rows, self.size, dtype=torch.float16, device=device)
        self._owner: Tensor | None = None
        if device.type == "cuda" and HAVE_TRITON and self.has_kernels:
            self._owner = torch.zeros(rows, dtype=torch.int32, device=device)
        #: Whether one loop of the CPU renews a row.
        self.fused_on_cpu = device.type == "cpu" and HAVE_NUMBA and self.has_kernels

    def __len__(self) -> int:
        return self.ids.shape[0]

    def fill(
        self, forbidden: Callable[[Tensor, Tensor], Tensor] | None, generator: torch.Generator
    ) -> None:
        """Fill every row with uniform distinct entities that are not forbidden; scores stay 0.

        ``forbidden(rows, ids)`` tells which ids may not enter their row: (b,), (b, k) -> (b, k).
        Rows that a first offer leaves short get a wider one, and in the end all entities: few rows
        come to that, those whose known answers are most of what there is.
        """
        rows = torch.arange(len(self), device=self.ids.device)
        widths = (self.size + _FILL_SLACK, _FILL_WIDTH * (self.size + _FILL_SLACK))
        for width in (*widths, self.num_entities):
            for part in torch.split(rows, max(1, _FILL_BLOCK // width)):
                seed = new_seed(generator)
                offered = self.fresh(part, width, seed)
                valid = ~repeats(offered)
                if forbidden is not None:
                    valid &= ~forbidden(part, offered)
                zeros = torch.zeros(offered.shape, device=offered.device)
                noise = hashed_gumbel(seed, part, offered.shape[1])
                place, kept = keep_without_replacement(zeros, valid, 0.0, "none", self.size, noise)
                self.ids[part] = offered.gather(1, place).masked_fill_(~kept, PADDING).int()
            rows = rows[self.ids[rows, -1] == PADDING]

    def fresh(self, rows: Tensor, count: int, seed: Tensor) -> Tensor:
        """Return ``count`` uniform entities a row; all of them once where ``count`` covers all."""
        if count >= self.num_entities:
            return torch.arange(self.num_entities, device=rows.device).expand(len(rows), -1)
        return hashed_entities(seed, rows, count, self.num_entities)

    def rescore(self, score: Callable[[Tensor, Tensor], Tensor], block_rows: int = 4096) -> None:
        """Store current scores for all rows. ``score(rows, ids)``: (b,), (b, k) -> (b, k)."""
        block_rows = max(1, min(block_rows, _FILL_BLOCK // self.size))
        for start in range(0, len(self), block_rows):
            rows = torch.arange(start, min(start + block_rows, len(self)), device=self.ids.device)
            ids = self.ids[rows].long()
            scores = score(rows, ids.clamp_min(0))
            self.scores[rows] = _half(scores.masked_fill(ids == PADDING, 0))

    def sample(
        self, rows: Tensor, alpha: float, count: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw entities from rows by their stored scores, with sigma2 (eq-samp-neg).

        Returns ids and whether each exists (a row may be empty). Shapes: (b,) -> (b, count).
        """
        shape = (len(rows), count)
        uniform = torch.rand(shape, generator=generator, device=self.ids.device)
        return self.sample_at(uniform, rows, alpha)

    def sample_at(self, uniform: Tensor, rows: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
        """Do what :meth:`sample` does with given uniform numbers. Shapes: (b, k), (b,)."""
        ids = self.ids[rows]
        valid = ids != PADDING
        if alpha == 0:  # padding is at the end: any of the first ones, evenly
            held = valid.sum(1, keepdim=True)
            place = (uniform * held).long().minimum(held - 1).clamp_min(0)
        else:
            place = draw_at(uniform, self.drawing_scores(rows), valid, alpha, self.rescaling)
        drawn = ids.gather(1, place).long()
        return drawn.clamp_min(0), drawn != PADDING

    def drawing_scores(self, rows: Tensor) -> Tensor:
        """Return the scores by which negatives are drawn from rows. Shapes: (b,) -> (b, N1)."""
        return self.scores[rows].float()

    def update(
        self,
        rows: Tensor,
        fresh: Tensor,
        fresh_valid: Tensor | None,
        score: Score,
        alpha: float,
        seed: Tensor,
    ) -> None:
        """Renew rows: out of what is there and what is fresh keep N1, with sigma3 (eq:prupc).

        The seed and the row decide the noise: a row that stands twice is renewed the same way
        twice, that is, once. Shapes: (b,), (b, N2), (b, N2).
        """
        if fresh_valid is not None:
            fresh = fresh.masked_fill(~fresh_valid, PADDING)
        candidates = torch.cat([self.ids[rows].long(), fresh], dim=1)
        self._keep(rows, candidates, score(candidates.clamp_min(0)), alpha, seed)

    def _keep(
        self, rows: Tensor, candidates: Tensor, scores: Tensor, alpha: float, seed: Tensor
    ) -> None:
        """Keep N1 of the candidates of each row; -1 stands for what may not enter."""
        if self.fused_on_cpu:
            self._keep_on_cpu(rows, candidates, scores, alpha, seed)
            return
        valid = (candidates != PADDING) & ~repeats(candidates)
        candidates = candidates.clamp_min(0)
        noise = hashed_gumbel(seed, rows, candidates.shape[1])
        place, exists = keep_without_replacement(
            scores, valid, alpha, self.rescaling, self.size, noise
        )
        self.ids[rows] = candidates.gather(1, place).masked_fill_(~exists, PADDING).int()
        self._store_scores(rows, scores.gather(1, place).masked_fill_(~exists, 0), place)

    def _store_scores(self, rows: Tensor, kept: Tensor, place: Tensor) -> None:
        """Store the scores of what was kept; ``place`` is where each stood among the candidates."""
        self.scores[rows] = _half(kept)

    def renew(
        self,
        rows: Tensor,
        count: int,
        known: KnownAnswers | None,
        score: Score,
        alpha: float,
        seed: Tensor,
        score_pool: Score | None = None,
    ) -> None:
        """Offer each row ``count`` fresh entities that are not known answers, and update it.

        With ``score_pool``, which scores the same entities (p,) for every row (b, p), all rows are
        offered the same ones.
        """
        if score_pool is not None:
            self._renew_from_pool(rows, count, known, score, alpha, seed, score_pool)
            return
        width = self.size + min(count, self.num_entities)
        owner = self._owner
        if owner is not None and width <= _GPU_WIDTH:
            from nscaching.sampling import gpu_kernels

            gpu_kernels.claim(owner, rows)
            entities = self.num_entities
            offered = gpu_kernels.offer(self.ids, owner, rows, count, entities, seed, known)
            scores = score(offered)
            kept = (self.ids, self.scores, owner, rows)
            gpu_kernels.renew(*kept, offered, scores, *self.weighting(alpha), seed)
            return
        if self.fused_on_cpu:
            offered = self._offer_on_cpu(rows, count, known, seed)
            scores = score(offered.clamp_min(0))
            self._keep_on_cpu(rows, offered, scores, alpha, seed)
            return
        fresh = self.fresh(rows, count, seed)
        proper = None if known is None else ~known.contains(rows, fresh)
        self.update(rows, fresh, proper, score, alpha, seed)

    def _renew_from_pool(
        self,
        rows: Tensor,
        count: int,
        known: KnownAnswers | None,
        score: Score,
        alpha: float,
        seed: Tensor,
        score_pool: Score,
    ) -> None:
        pool = self.fresh(torch.zeros_like(rows[:1]), count, seed)[0]
        fresh = pool.expand(len(rows), -1)
        if known is not None:
            fresh = fresh.masked_fill(known.contains(rows, fresh), PADDING)
        kept = self.ids[rows].long()
        candidates = torch.cat([kept, fresh], dim=1)
        scores = torch.cat([score(kept.clamp_min(0)), score_pool(pool)], dim=1)
        self._keep(rows, candidates, scores, alpha, seed)

    def _offer_on_cpu(
        self, rows: Tensor, count: int, known: KnownAnswers | None, seed: Tensor
    ) -> Tensor:
        """Put together what rows hold and are offered. Shape: (b, N1 + N2)."""
        from nscaching.sampling import cpu_kernels

        width = self.size + min(count, self.num_entities)
        offered = torch.empty(len(rows), width, dtype=torch.int64)
        nothing = torch.empty(0, dtype=torch.int64)
        cpu_kernels.offer_rows(
            self.ids.numpy(),
            rows.numpy(),
            offered.numpy(),
            (nothing if known is None else known.offsets).numpy(),
            (nothing.int() if known is None else known.answers).numpy(),
            self.num_entities,
            unsigned(seed),
        )
        return offered

    def _keep_on_cpu(
        self, rows: Tensor, candidates: Tensor, scores: Tensor, alpha: float, seed: Tensor
    ) -> None:
        """Do what :meth:`_keep` does in one fused loop."""
        from nscaching.sampling import keeping_kernels

        keeping_kernels.renew_rows(
            self.ids.numpy(),
            self.scores.numpy().view(np.uint16),
            rows.numpy(),
            candidates.numpy(),
            scores.numpy(),
            *self.weighting(alpha),
            unsigned(seed),
        )

    def weighting(self, alpha: float) -> tuple[float, int]:
        """Return the temperature and the way to weight as the kernels take them."""
        if alpha == 0:
            return 0.0, UNIFORM
        if alpha == math.inf:
            return 0.0, HARDEST
        return float(alpha), QUANTILE if self.rescaling == "quantile" else RAW

    def totals(self) -> Tensor:
        """Return the sum of the stored scores of each row. Shape: (rows,)."""
        return self.scores.sum(1, dtype=torch.float32)


def _half(scores: Tensor) -> Tensor:
    """Round scores to what a row stores; those beyond its range become its largest."""
    return scores.clamp(-LARGEST_SCORE, LARGEST_SCORE).half()


def repeats(ids: Tensor) -> Tensor:
    """Tell which ids stood earlier in their row already. Shapes: (b, k) -> (b, k)."""
    ordered = ids.sort(dim=1, stable=True)
    again = torch.zeros_like(ids, dtype=torch.bool)
    again[:, 1:] = ordered.values[:, 1:] == ordered.values[:, :-1]
    return torch.zeros_like(again).scatter_(1, ordered.indices, again)
