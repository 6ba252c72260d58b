"""Penalties on the rows of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.models import BatchQueries
from nscaching.models.queries import IdsAndRows


class N3:
    """The nuclear 3-norm (Lacroix et al. 2018): ``weight * |x|^3`` of each row that a question has.

    For complex rows, laid out as [re, im], |x| is the modulus of each number.
    """

    def __init__(self, weight: float, is_complex: bool) -> None:
        self.weight, self.is_complex = weight, is_complex

    def gradient(self, rows: Tensor, times: int = 1) -> Tensor:
        """Return the gradient of the penalty on rows that count so often. Shape: (b, width)."""
        if self.is_complex:
            re, im = rows.chunk(2, dim=-1)
            modulus = torch.hypot(re, im).repeat(1, 2)
        else:
            modulus = rows.abs()
        return modulus.mul_(rows).mul_(3 * self.weight * times)

    def gradients(self, queries: BatchQueries, both_sides: bool) -> tuple[IdsAndRows, IdsAndRows]:
        """Return ids and gradients of the entities, and of the relations, of a batch."""
        model, times = queries.model, 2 if both_sides else 1
        ids = torch.cat([queries.heads, queries.tails])
        entity = (ids, self.gradient(model.entity[ids], times))
        if not model.reciprocal:
            relations = queries.relations
            return entity, (relations, self.gradient(model.relation[relations], times))
        relations = queries.relations
        rows = torch.cat([relations + model.num_relations, relations])
        return entity, (rows, self.gradient(model.relation[rows]))
