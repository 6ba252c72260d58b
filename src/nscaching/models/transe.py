"""TransE: ``-||h + r - t||_p``."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from nscaching.models.base import ScoringFunction
from nscaching.models.match import NO_VIEW, UNIT, Match
from nscaching.models.matches import Distance


class TransE(ScoringFunction):
    """Bordes et al. 2013. The relation moves the head to the tail; entities are normalised."""

    name = "transe"
    usual_loss = "margin"
    is_translation = True
    #: How a relation sees an entity.
    view: ClassVar[int] = UNIT

    def build_match(self) -> Match:
        """Return the p-norm of the difference of views."""
        as_it_is = self.view == UNIT and not self.normalize
        return Distance(self.norm, NO_VIEW if as_it_is else self.view)

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return ``view(h) + r``."""
        return self.match.view(h, self.context(r)) + r[..., : self.dim]

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return ``view(t) - r``."""
        return self.match.view(t, self.context(r)) - r[..., : self.dim]
