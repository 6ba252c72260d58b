"""DistMult: ``<h, r, t>``."""

from __future__ import annotations

from torch import Tensor

from nscaching.models.families import Bilinear


class DistMult(Bilinear):
    """Yang et al. 2014. A diagonal bilinear form; symmetric in head and tail."""

    name = "distmult"
    kernel_kind = 0

    @property
    def entity_width(self) -> int:
        """One vector an entity."""
        return self.dim

    @property
    def relation_width(self) -> int:
        """One vector a relation."""
        return self.dim

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return ``h * r``."""
        return h * r

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return ``r * t``."""
        return r * t
