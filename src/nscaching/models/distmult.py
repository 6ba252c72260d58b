"""DistMult: ``<h, r, t>``."""

from __future__ import annotations

from torch import Tensor

from nscaching.models.base import Semantic


class DistMult(Semantic):
    """Yang et al. 2014. A diagonal bilinear form; symmetric in head and tail."""

    name = "distmult"

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return ``h * r``."""
        return h * r

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return ``r * t``."""
        return r * t
