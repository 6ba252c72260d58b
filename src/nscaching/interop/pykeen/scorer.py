"""A PyKEEN model as the scorer that our samplers ask."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from nscaching.interop.pykeen.kernels import score_by_kernel
from nscaching.models import Side
from nscaching.sampling import Batch

#: Floats gathered at once, as in :mod:`nscaching.models.model`: on a CPU a block stays in cache.
_BLOCK_FLOATS = {"cpu": 1 << 19}
_BLOCK_FLOATS_DEVICE = 1 << 27


class PyKEENScorer:
    """Scores candidates with ``score_h`` and ``score_t``, without gradient and without dropout."""

    def __init__(self, model: Any, mode: str | None = None) -> None:
        self.model = model
        self.mode = mode
        tables = getattr(model, "entity_representations", ())
        self._width: int = max(1, sum(int(math.prod(table.shape)) for table in tables))

    def score_candidates(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor
    ) -> Tensor:
        """Score k candidates per question, -1 as -inf. Shapes: (b,), (b,), (b, k) -> (b, k)."""
        with self._asking():
            ready = score_by_kernel(self.model, side, anchor, relation, candidates)
            if ready is not None:
                return ready
            pairs = _pairs(side, anchor, relation)
            rows = self._block_rows(candidates.shape[1])
            known = candidates.clamp_min(0)
            blocks = zip(torch.split(pairs, rows), torch.split(known, rows), strict=True)
            scores = torch.cat([self._score(side, *block) for block in blocks])
            return scores.masked_fill(candidates < 0, -torch.inf)

    def score_pool(self, side: Side, anchor: Tensor, relation: Tensor, pool: Tensor) -> Tensor:
        """Score the same entities for each question. Shapes: (b,), (b,), (p,) -> (b, p)."""
        with self._asking():
            pairs = _pairs(side, anchor, relation)
            blocks = torch.split(pairs, self._block_rows(len(pool)))
            return torch.cat([self._score(side, block, pool) for block in blocks])

    def score_all(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Score all entities. Shapes: (b,), (b,) -> (b, n)."""
        everything = torch.arange(self.model.num_entities, device=anchor.device)
        return self.score_pool(side, anchor, relation, everything)

    def _score(self, side: Side, pairs: Tensor, candidates: Tensor) -> Tensor:
        if side is Side.TAIL:
            scores = self.model.score_t(pairs, tails=candidates, mode=self.mode)
        else:
            scores = self.model.score_h(pairs, heads=candidates, mode=self.mode)
        kept: Tensor = scores.detach().float()
        return kept

    def _block_rows(self, candidates: int) -> int:
        limit = _BLOCK_FLOATS.get(str(self.model.device.type), _BLOCK_FLOATS_DEVICE)
        return max(1, limit // max(1, candidates * self._width))

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Take the model out of training: no dropout, no batch statistics, no regularisation."""
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.model.train(training)


class BatchQuestions:
    """The questions of a batch, scored by a PyKEEN model, as our samplers ask them."""

    def __init__(self, scorer: PyKEENScorer, batch: Batch) -> None:
        self.scorer, self.batch = scorer, batch

    def score(self, side: Side, ids: Tensor, places: Tensor | None = None) -> Tensor:
        """Score candidates of the questions for one side, -1 as -inf. Shapes: (b, k) -> (b, k)."""
        return self.scorer.score_candidates(side, *self._asked(side, places), ids)

    def score_pool(self, side: Side, pool: Tensor, places: Tensor | None = None) -> Tensor:
        """Score one pool for the questions for one side. Shapes: (p,) -> (b, p)."""
        return self.scorer.score_pool(side, *self._asked(side, places), pool)

    def _asked(self, side: Side, places: Tensor | None) -> tuple[Tensor, Tensor]:
        anchor, relation = self.batch.anchor(side), self.batch.relations
        return (anchor, relation) if places is None else (anchor[places], relation[places])


def _pairs(side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
    """Return (h, r) or (r, t) pairs. Shapes: (b,), (b,) -> (b, 2)."""
    return torch.stack([anchor, relation] if side is Side.TAIL else [relation, anchor], dim=1)
