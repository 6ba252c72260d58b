"""ComplEx: ``Re<h, r, conj(t)>``."""

from __future__ import annotations

from torch import Tensor

from nscaching.models.base import Semantic, complex_product


class ComplEx(Semantic):
    """Trouillon et al. 2016. Rows [re, im]; ``Re(a conj(b))`` is the dot product of such rows."""

    name = "complex"
    entity_parts = 2
    relation_parts = 2
    number_parts = 2

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return ``h r``."""
        return complex_product(h, r)

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return ``t conj(r)``."""
        return complex_product(t, r, conjugate_b=True)
