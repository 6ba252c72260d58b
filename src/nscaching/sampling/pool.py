"""Uniform entities that all questions of a step share: what they weigh, and the hardest of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from nscaching.kernels.registry import kernel
from nscaching.sampling.cache import PADDING, fresh_entities


class Pool(NamedTuple):
    """Entities that the questions of a step share."""

    ids: Tensor  #: (p,), ascending
    weights: Tensor  #: (p,): how many entities each stands for, 0 for a repeat

    @classmethod
    def drawn(cls, seed: Tensor, size: int, num_entities: int) -> Pool:
        """Draw uniform entities, in ascending order.

        Each stands for its share of all entities; a repeat stands for none.
        """
        if size >= num_entities:  # each of them once
            ids = torch.arange(num_entities, device=seed.device)
            return cls(ids, torch.ones(num_entities, device=seed.device))
        ids, first = draw_pool(seed, size, num_entities)
        return cls(ids, first * (num_entities / first.sum()))

    def weights_without(self, ids: Tensor) -> Tensor:
        """Return the weights per question, 0 for entities among ids (q, m). Shape: (q, p)."""
        return pool_weights(self.ids, self.weights, ids)


@kernel(gpu="pool_gpu")
def draw_pool(seed: Tensor, size: int, num_entities: int) -> tuple[Tensor, Tensor]:
    """Draw entities; return them in ascending order, and 1 for each but repeats. Shapes: (p,)."""
    nothing = torch.zeros(1, dtype=torch.int64, device=seed.device)
    ids = fresh_entities(nothing, size, num_entities, seed)[0].sort().values
    return ids, pad(ids[1:] != ids[:-1], (1, 0), value=True).float()


@kernel(gpu="pool_gpu")
def pool_weights(pool: Tensor, weights: Tensor, own: Tensor) -> Tensor:
    """Return the weights of a pool for each question, 0 for entities that it has of its own.

    Shapes: (p,) ascending, (p,), (q, m) -> (q, p).
    """
    size = len(pool)
    place = torch.searchsorted(pool, own).clamp_max_(size - 1)
    place = torch.where(pool[place] == own, place, size)
    found = pad(weights, (0, 1)).expand(len(own), -1).clone()
    return found.scatter_(1, place, 0.0)[:, :size]


@kernel(cpu="cache_cpu", gpu="pool_gpu")
def hardest(scores: Tensor, weights: Tensor, pool: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the entities of a pool that score highest, in any order, and their scores.

    Those without weight are left out, -1 where too few are left. The scores of the pool are the
    last ones of each question. Shapes: (q, . + p), (q, p), (p,) -> (q, size), (q, size).
    """
    first = scores.shape[1] - len(pool)
    shared = scores[:, first:].masked_fill(weights == 0, -torch.inf)
    values, places = shared.topk(size, dim=1)
    return pool[places].masked_fill(values == -torch.inf, PADDING), values
