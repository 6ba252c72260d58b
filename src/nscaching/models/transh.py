"""TransH: translation on a hyperplane of the relation."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

from nscaching.models.match import HYPERPLANE
from nscaching.models.transe import TransE


class TransH(TransE):
    """Wang et al. 2014. ``x_perp = x - (w_r . x) w_r`` with ``||w_r|| = 1``; rows [r, w]."""

    name = "transh"
    relation_parts = 2
    view = HYPERPLANE

    def context(self, r: Tensor) -> Tensor:
        """Return the hyperplane's unit normal."""
        return normalize(r[..., self.dim :], dim=-1)
