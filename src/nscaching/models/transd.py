"""TransD: a projection made from a vector of the entity and one of the relation."""

from __future__ import annotations

from torch import Tensor

from nscaching.models.match import PROJECTION
from nscaching.models.transe import TransE


class TransD(TransE):
    """Ji et al. 2015. ``x_perp = x + (w_x . x) w_r``; rows [x, w_x] and [r, w_r]."""

    name = "transd"
    entity_parts = 2
    relation_parts = 2
    view = PROJECTION

    def context(self, r: Tensor) -> Tensor:
        """Return the relation's projection vector."""
        return r[..., self.dim :]
