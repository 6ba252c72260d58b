"""SimplE: ``<h1, r1, t2> + <h2, r2, t1>``."""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.models.base import Semantic


class SimplE(Semantic):
    """Kazemi & Poole 2018. Rows [x1, x2]: an entity's vector as a head and as a tail."""

    name = "simple"
    entity_parts = 2
    relation_parts = 2

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return ``[h2 r2, h1 r1]``, which meets ``[t1, t2]``."""
        first, second = (h * r).chunk(2, dim=-1)
        return torch.cat([second, first], dim=-1)

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return ``[r1 t2, r2 t1]``, which meets ``[h1, h2]``."""
        t1, t2 = t.chunk(2, dim=-1)
        return r * torch.cat([t2, t1], dim=-1)
