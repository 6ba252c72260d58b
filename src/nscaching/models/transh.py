"""TransH: translation on a hyperplane of the relation."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

from nscaching.models.families import HYPERPLANE, Translational


class TransH(Translational):
    """Wang et al. 2014. ``x_perp = x - (w_r . x) w_r`` with ``||w_r|| = 1``; rows [r, w]."""

    name = "transh"
    relational_view = True
    kernel_kind = HYPERPLANE

    @property
    def relation_width(self) -> int:
        """Translation and normal vector."""
        return 2 * self.dim

    def view(self, entity: Tensor, r: Tensor | None) -> Tensor:
        """Project the normalised entity onto the relation's hyperplane."""
        assert r is not None
        x = super().view(entity, r)
        w = normalize(r[..., self.dim :], dim=-1)
        return x - (w * x).sum(-1, keepdim=True) * w

    def kernel_vector(self, r: Tensor) -> Tensor:
        """Return the hyperplane's unit normal."""
        return normalize(r[:, self.dim :], dim=-1)
