"""A PyKEEN model as the scorer that our samplers ask.

PyKEEN gathers every candidate's row and then adds or multiplies whole blocks. For the interactions
of ``_QUERIES`` the fixed pair becomes a query once, and a kernel compares it with rows where they
lie. The scores are those of ``score_h`` and ``score_t``; where anything differs from the plain
case, there is no query, and PyKEEN scores by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pykeen.models import ERModel
from pykeen.nn import Embedding
from pykeen.nn.modules import (
    ComplExInteraction,
    DistMultInteraction,
    RotatEInteraction,
    TransEInteraction,
)
from torch import Tensor

from nscaching.models import Side
from nscaching.models.match import NO_VIEW
from nscaching.models.match import Query as MatchQuery
from nscaching.models.matches import Distance, Dot
from nscaching.sampling import Batch

#: (side, rows of the anchors, rows of the relations) -> rows that the answers are compared with
Query = Callable[[Side, Tensor, Tensor], Tensor]
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


# Our kernels --------------------------------------------------------------------------------------


def score_by_kernel(
    model: Any, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor
) -> Tensor | None:
    """Score candidates by a kernel, or return None. Shapes: (b,), (b,), (b, k) -> (b, k)."""
    if not isinstance(model, ERModel) or type(model.interaction) not in _QUERIES:
        return None
    tables = [*model.entity_representations, *model.relation_representations]
    if len(tables) != 2 or not all(_is_plain(table) for table in tables):
        return None
    query_of = _QUERIES[type(model.interaction)]
    entities, relations = tables
    query = query_of(side, entities(anchor), relations(relation))
    if query.is_complex():
        query = torch.view_as_real(query).flatten(1)
    weight = entities._embeddings.weight
    inputs = (MatchQuery(query), weight.detach(), candidates)
    if isinstance(model.interaction, DistMultInteraction | ComplExInteraction):
        return Dot().forward(*inputs)
    norm = 2 if isinstance(model.interaction, RotatEInteraction) else model.interaction.p
    if norm not in (1, 2) or getattr(model.interaction, "power_norm", False):
        return None
    return Distance(int(norm), NO_VIEW).forward(*inputs)


def _is_plain(table: Any) -> bool:
    """Tell whether a representation is its stored vectors and nothing else."""
    return type(table) is Embedding and table.normalizer is None and len(table.shape) == 1


def _translated(side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
    return anchor + relation if side is Side.TAIL else anchor - relation


def _multiplied(side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
    return anchor * relation


def _turned(side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
    return anchor * (relation if side is Side.TAIL else relation.conj())


_QUERIES: dict[type, Query] = {
    TransEInteraction: _translated,
    DistMultInteraction: _multiplied,
    ComplExInteraction: _turned,
    RotatEInteraction: _turned,
}
