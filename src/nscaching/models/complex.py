"""ComplEx: ``Re<h, r, conj(t)>``."""

from __future__ import annotations

from torch import Tensor

from nscaching.models.families import Bilinear, complex_product


class ComplEx(Bilinear):
    """Trouillon et al. 2016. Rows [re, im]; ``Re(a conj(b))`` is the dot product of such rows."""

    name = "complex"
    kernel_kind = 1

    @property
    def entity_width(self) -> int:
        """Real and imaginary part."""
        return 2 * self.dim

    @property
    def relation_width(self) -> int:
        """Real and imaginary part."""
        return 2 * self.dim

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return ``h r``."""
        return complex_product(h, r)

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return ``t conj(r)``."""
        return complex_product(t, r, conjugate_b=True)
