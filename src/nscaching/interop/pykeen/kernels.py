"""Our kernels for PyKEEN models that are a query compared with rows of one table.

PyKEEN gathers every candidate's row and then adds or multiplies whole blocks. For the interactions
below the fixed pair becomes a query once, and a kernel compares it with rows where they lie. The
scores are those of ``score_h`` and ``score_t``; where anything differs from the plain case, there
is no query, and PyKEEN scores by itself.
"""

from __future__ import annotations

from collections.abc import Callable
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
from nscaching.models.matches import NO_VIEW, Distance, Dot
from nscaching.models.matches import Query as MatchQuery

#: (side, rows of the anchors, rows of the relations) -> rows that the answers are compared with
Query = Callable[[Side, Tensor, Tensor], Tensor]


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
