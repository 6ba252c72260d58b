"""Penalties on the rows of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.models import BatchQueries
from nscaching.models.base import ScoringFunction
from nscaching.models.queries import IdsAndRows


class N3:
    """The nuclear 3-norm (Lacroix et al. 2018): ``weight * |x|^3`` of each row that a question has.

    |x| is the modulus of each number; rows of complex numbers are laid out as [re, im], those of
    quaternions as [a, b, c, d]. Relations of unit length have no penalty.
    """

    def __init__(self, weight: float, scoring: ScoringFunction) -> None:
        self.weight, self.parts = weight, scoring.number_parts
        self.of_relations = not scoring.unit_relations

    def gradient(self, rows: Tensor, times: float = 1) -> Tensor:
        """Return the gradient of the penalty on rows that count so often. Shape: (b, width)."""
        if self.parts == 1:
            modulus = rows.abs()
        else:
            modulus, *others = rows.chunk(self.parts, dim=-1)
            for part in others:  # ten times as fast on a CPU as a norm over parts
                modulus = torch.hypot(modulus, part)
            modulus = modulus.repeat(1, self.parts)
        return modulus.mul_(rows).mul_(3 * self.weight * times)

    def gradients(
        self, queries: BatchQueries, both_sides: bool
    ) -> tuple[IdsAndRows, IdsAndRows | None]:
        """Return ids and gradients of the entities, and of the relations, of a batch."""
        model, times = queries.model, 2 if both_sides else 1
        ids = torch.cat([queries.heads, queries.tails])
        entity = (ids, self.gradient(model.rows(ids), times))
        if not self.of_relations:
            return entity, None
        rows = queries.relations
        share: float = times
        if model.reciprocal:  # each side has a relation of its own; of one question, half of each
            rows, share = torch.cat([rows + model.num_relations, rows]), times / 2
        return entity, (rows, self.gradient(model.relation[rows], share))
