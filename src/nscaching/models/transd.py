"""TransD: a projection made from a vector of the entity and one of the relation."""

from __future__ import annotations

from torch import Tensor

from nscaching.models.families import PROJECTION, Translational


class TransD(Translational):
    """Ji et al. 2015. ``x_perp = x + (w_x . x) w_r``; rows [x, w_x] and [r, w_r]."""

    name = "transd"
    relational_view = True
    kernel_kind = PROJECTION

    @property
    def entity_width(self) -> int:
        """Vector and projection vector."""
        return 2 * self.dim

    @property
    def relation_width(self) -> int:
        """Translation and projection vector."""
        return 2 * self.dim

    def view(self, entity: Tensor, r: Tensor | None) -> Tensor:
        """Project the normalised entity with its own and the relation's projection vector."""
        assert r is not None
        x = super().view(entity, r)
        w_x, w_r = entity[..., self.dim :], r[..., self.dim :]
        return x + (w_x * x).sum(-1, keepdim=True) * w_r

    def kernel_vector(self, r: Tensor) -> Tensor:
        """Return the relation's projection vector."""
        return r[:, self.dim :]
