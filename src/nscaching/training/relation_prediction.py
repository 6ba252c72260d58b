"""Relation prediction as an auxiliary objective (Chen et al. 2021).

Beside the entities a step also predicts the relation of every triple: the cross-entropy of the true
relation among all, given head and tail. What tells relations apart is worth knowing of an entity,
and with few relations it costs little beside a softmax over entities.

A bilinear score is linear in the relation too, so that the question (h, ?, t) has a query like the
others, whose dot product with the row of a relation is the score of the triple. It is made of the
same products of parts, ``ScoringFunction.terms``: no scoring function has a line for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.losses import OverAll, SoftmaxCrossEntropy
from nscaching.models import BatchQueries
from nscaching.models.base import ScoringFunction
from nscaching.models.match import Query
from nscaching.models.matches import Dot
from nscaching.models.queries import IdsAndRows

#: Places (part of the result, of the first factor, of the second) with a sign.
_Products = list[tuple[int, int, int, float]]


class RelationPrediction:
    """``weight`` times the cross-entropy of the true relation among all, given head and tail.

    With reciprocal relations the pair is asked in both orders, each among its half of the table.
    """

    def __init__(self, weight: float, scoring: ScoringFunction) -> None:
        assert scoring.terms is not None  # TrainConfig.check_relation_prediction refuses others
        terms = scoring.terms[1].tolist()
        places = [
            (target, anchor, relation, float(sign))
            for target, of_target in enumerate(terms)
            for anchor, of_anchor in enumerate(of_target)
            for relation, sign in enumerate(of_anchor)
            if sign
        ]
        self.weight, self.dim = weight, scoring.dim
        self._loss, self._match = SoftmaxCrossEntropy(), Dot()
        self._query: _Products = [(r, a, t, sign) for t, a, r, sign in places]
        self._to_anchor: _Products = [(a, r, t, sign) for t, a, r, sign in places]
        self._to_target: _Products = [(t, r, a, sign) for t, a, r, sign in places]

    def gradients(self, queries: BatchQueries) -> tuple[IdsAndRows, Tensor]:
        """Return ids and gradients of heads and tails, and the gradient of all relations."""
        model, relations = queries.model, queries.relations
        ids = torch.cat([queries.heads, queries.tails])
        heads, tails = model.rows(ids).chunk(2)
        count = model.num_relations
        d_head, d_tail, d_first = self._of(heads, tails, model.relation[:count], relations)
        if not model.reciprocal:
            return (ids, torch.cat([d_head, d_tail])), d_first
        inverse = self._of(tails, heads, model.relation[count:], relations)
        rows = torch.cat([d_head + inverse[1], d_tail + inverse[0]])
        return (ids, rows), torch.cat([d_first, inverse[2]])

    def _of(
        self, anchors: Tensor, targets: Tensor, table: Tensor, relations: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of anchors and targets (b, w), and of the relations (n, rw)."""
        query = self._products(anchors, targets, self._query, table.shape[1])
        over = OverAll(self._loss, self._match, Query(query), table)
        found = over.gradients(over.total(), relations)
        d_query = found.query.mul_(self.weight)
        d_anchors = self._products(d_query, targets, self._to_anchor, anchors.shape[1])
        d_targets = self._products(d_query, anchors, self._to_target, targets.shape[1])
        return d_anchors, d_targets, found.rows.mul_(self.weight)

    def _products(self, first: Tensor, second: Tensor, places: _Products, width: int) -> Tensor:
        """Return sums of products of parts of two rows. Shapes: (b, .), (b, .) -> (b, width)."""
        a, b = (rows.view(len(rows), -1, self.dim) for rows in (first, second))
        found = first.new_zeros(len(first), width // self.dim, self.dim)
        for to, i, j, sign in places:
            found[:, to].addcmul_(a[:, i], b[:, j], value=sign)
        return found.flatten(1)
