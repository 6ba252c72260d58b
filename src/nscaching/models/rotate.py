"""RotatE: ``-sum_k |h_k r_k - t_k|`` with ``|r_k| = 1``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nscaching.models.base import PairGradients, ScoringFunction
from nscaching.models.families import complex_product, run_gradients, run_kernel

#: Differences held at once when all entities are scored: as much as a CPU's cache, or a GPU, holds.
_BLOCK_FLOATS, _GPU_BLOCK_FLOATS = 1 << 20, 1 << 27


class RotatE(ScoringFunction):
    """Sun et al. 2019. Entities [re, im]; a relation is a rotation, stored as phases."""

    name = "rotate"
    usual_loss = "margin"

    @property
    def entity_width(self) -> int:
        """Real and imaginary part."""
        return 2 * self.dim

    @property
    def relation_width(self) -> int:
        """One phase a coordinate."""
        return self.dim

    def init_(self, entity: Tensor, relation: Tensor, generator: torch.Generator) -> None:
        """Xavier for the entities; phases uniform on the circle."""
        super().init_(entity, relation, generator)
        relation.uniform_(-math.pi, math.pi, generator=generator)

    def tail_query(self, h: Tensor, r: Tensor) -> Tensor:
        """Return the head, rotated."""
        return complex_product(h, _rotation(r))

    def head_query(self, r: Tensor, t: Tensor) -> Tensor:
        """Return the tail, rotated back; the distance is the same because ``|r_k| = 1``."""
        return complex_product(t, _rotation(r), conjugate_b=True)

    def match(self, query: Tensor, view: Tensor) -> Tensor:
        """Negative sum of the moduli of the complex differences."""
        re, im = (query - view).chunk(2, dim=-1)
        moduli: Tensor = torch.linalg.vector_norm(torch.stack([re, im], dim=-1), dim=-1)
        return -moduli.sum(-1)

    def match_each(self, query: Tensor, views: Tensor) -> Tensor:
        """Compare each query with its own views."""
        return self.match(query.unsqueeze(1), views)

    def score_ids(self, query: Tensor, r: Tensor, table: Tensor, ids: Tensor) -> Tensor | None:
        """Distances fused with the gather."""
        return run_kernel("complex_distance", (query, table, ids), ids.shape)

    def pair_gradients(
        self,
        entity: Tensor,
        relation: Tensor,
        ids: tuple[Tensor, Tensor, Tensor],
        negatives: tuple[Tensor, Tensor, Tensor],
        margin: float | None,
    ) -> PairGradients | None:
        """Score, loss and gradients in one pass."""
        return run_gradients("rotation", (entity, relation), ids, negatives, margin)

    def match_all(self, query: Tensor, views: Tensor) -> Tensor:
        """Compare with all views, a block of entities at a time."""
        shape = (len(query), len(views))
        fused = run_kernel("all_complex_distances", (query, views), shape)
        if fused is not None:
            return fused
        scores = query.new_empty(query.shape[0], views.shape[0])
        floats = _BLOCK_FLOATS if query.device.type == "cpu" else _GPU_BLOCK_FLOATS
        block = max(1, floats // max(1, query.numel()))
        for start in range(0, views.shape[0], block):
            part = views[start : start + block]
            re, im = (query.unsqueeze(1) - part).chunk(2, dim=-1)
            scores[:, start : start + block] = -torch.hypot(re, im).sum(-1)
        return scores


def _rotation(phase: Tensor) -> Tensor:
    """Return the unit complex numbers of the phases, as [re, im]."""
    return torch.cat([phase.cos(), phase.sin()], dim=-1)
