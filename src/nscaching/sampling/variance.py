"""A cache that follows how the score of each entity varies while it stays (``ssec:falseneg``).

The paper's study of false negatives: they score high but vary little, large-gradient negatives
vary. So negatives are drawn by ``score + nu * std``, with Welford's running variance over the
updates that an entity has been through. It is a study, off by default, and has no kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.sampling.cache import Cache


class VarianceCache(Cache):
    """A cache with the count, mean and summed squared deviation of each entity's scores."""

    parts = (*Cache.parts, "count", "mean", "deviation")
    has_kernels = False

    def __init__(
        self,
        rows: int,
        size: int,
        num_entities: int,
        rescaling: str,
        device: torch.device,
        *,
        nu: float,
    ) -> None:
        super().__init__(rows, size, num_entities, rescaling, device)
        self.nu = nu
        self.count, self.mean, self.deviation = torch.zeros(3, rows, self.size, device=device)

    def std(self, rows: Tensor) -> Tensor:
        """Return the standard deviation of the scores seen so far. Shapes: (b,) -> (b, N1)."""
        variance: Tensor = self.deviation[rows] / self.count[rows].clamp_min(1)
        return variance.sqrt()

    def drawing_scores(self, rows: Tensor) -> Tensor:
        """Return ``score + nu * std``."""
        return super().drawing_scores(rows) + self.nu * self.std(rows)

    def _store_scores(self, rows: Tensor, kept: Tensor, place: Tensor) -> None:
        """Take each entity's past along, and add its new score (Welford)."""
        count, mean, deviation = (
            self._past(part[rows], place) for part in (self.count, self.mean, self.deviation)
        )
        count = count + 1
        gap = kept - mean
        mean = mean + gap / count
        self.count[rows] = count
        self.mean[rows] = mean
        self.deviation[rows] = deviation + gap * (kept - mean)
        super()._store_scores(rows, kept, place)

    def _past(self, part: Tensor, place: Tensor) -> Tensor:
        """Return what was known of the kept ones: zero for those that were not in the row."""
        known = part.gather(1, place.clamp_max(self.size - 1))
        return torch.where(place < self.size, known, 0.0)
