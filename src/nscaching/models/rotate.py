"""RotatE: ``-sum_k |h_k r_k - t_k|`` with ``|r_k| = 1``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nscaching.models.base import ScoringFunction, complex_product
from nscaching.models.match import Match
from nscaching.models.matches import Modulus


class RotatE(ScoringFunction):
    """Sun et al. 2019. Entities [re, im]; a relation is a rotation, stored as phases."""

    name = "rotate"
    usual_loss = "margin"
    entity_parts = 2
    number_parts = 2

    @property
    def unit_relations(self) -> bool:
        """A phase has no length."""
        return True

    def build_match(self) -> Match:
        """Return the sum of moduli of complex differences."""
        return Modulus()

    def init_(self, entity: Tensor, relation: Tensor, generator: torch.Generator) -> None:
        """Xavier for the entities; phases uniform on the circle."""
        super().init_(entity, relation, generator)
        relation.uniform_(-math.pi, math.pi, generator=generator)

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return the head, rotated."""
        return complex_product(h, _rotation(r))

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return the tail, rotated back; the distance is the same because ``|r_k| = 1``."""
        return complex_product(t, _rotation(r), conjugate_b=True)


def _rotation(phase: Tensor) -> Tensor:
    """Return the unit complex numbers of the phases, as [re, im]."""
    return torch.cat([phase.cos(), phase.sin()], dim=-1)
