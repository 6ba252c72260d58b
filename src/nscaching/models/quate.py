"""QuatE: ``<h x r / |r|, t>``, the Hamilton product of quaternions with a unit relation.

Without ``normalize`` relations keep their length: the score is bilinear, and ComplEx a part of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.models.base import Semantic


class QuatE(Semantic):
    """Zhang et al. 2019. Rows [a, b, c, d], the four parts of ``dim`` quaternions."""

    name = "quate"
    entity_parts = 4
    relation_parts = 4
    number_parts = 4

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return the head, rotated by the relation."""
        return _hamilton(h, self._parts(r))

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return the tail, rotated back: ``<h q, t> = <h, t conj(q)>``."""
        a, b, c, d = self._parts(r)
        return _hamilton(t, (a, -b, -c, -d))

    @property
    def unit_relations(self) -> bool:
        """Relations are rotations, unless they keep their length."""
        return self.normalize

    def _parts(self, r: Tensor) -> tuple[Tensor, ...]:
        """Return the four parts of the relation's quaternions, normalised or not."""
        parts = r.chunk(4, dim=-1)
        if not self.normalize:
            return parts
        norm = torch.stack(parts).square().sum(0).clamp_min(1e-24).sqrt()
        return tuple(part / norm for part in parts)


def _hamilton(x: Tensor, by: tuple[Tensor, ...]) -> Tensor:
    """Multiply quaternions element by element. Shapes: (..., 4d) -> (..., 4d)."""
    p, q, u, v = x.chunk(4, dim=-1)
    a, b, c, d = by
    products = (
        p * a - q * b - u * c - v * d,
        p * b + q * a + u * d - v * c,
        p * c - q * d + u * a + v * b,
        p * d + q * c - u * b + v * a,
    )
    return torch.cat(products, dim=-1)
