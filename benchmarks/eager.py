"""NSCaching as one would write it straight from the paper, in eager PyTorch.

The peer of the benchmark: gather, multiply, sum; ``torch.multinomial`` for the cache update;
autograd on the whole tables; ``torch.optim.Adam`` as it comes. SimplE with the logistic loss,
Bernoulli sides, known positives allowed (the simplest variant), one negative a positive. Tests hold
it equal to the library where nothing is random (``tests/test_eager_twin.py``).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from nscaching.graph import KnowledgeGraph


class EagerNSCaching:
    """Model, caches and one training step."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        *,
        dim: int,
        cache_size: int,
        candidates: int,
        alpha3: float,
        lr: float,
        l2: float,
        batch_size: int,
        seed: int = 0,
    ) -> None:
        torch.manual_seed(seed)
        self.num_entities = graph.num_entities
        self.n1, self.n2, self.alpha3, self.dim = cache_size, candidates, alpha3, dim
        self.triples = torch.from_numpy(graph.train).long()
        self.head_probability = torch.from_numpy(graph.statistics.head_probability)
        self.head_row = torch.from_numpy(graph.rows.head.of_triple).long()
        self.tail_row = torch.from_numpy(graph.rows.tail.of_triple).long()
        self.head_cache = self._random_cache(len(graph.rows.head.anchor))
        self.tail_cache = self._random_cache(len(graph.rows.tail.anchor))
        self.entity = torch.nn.Parameter(torch.empty(graph.num_entities, 2 * dim))
        self.relation = torch.nn.Parameter(torch.empty(graph.num_relations, 2 * dim))
        for table in (self.entity, self.relation):
            torch.nn.init.xavier_uniform_(table)
        self.adam = torch.optim.Adam(
            [self.entity, self.relation], lr=lr, weight_decay=l2 * batch_size / len(graph.train)
        )

    def _random_cache(self, rows: int) -> Tensor:
        return torch.randint(self.num_entities, (rows, self.n1))

    def score(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """``<h1, r1, t2> + <h2, r2, t1>`` for ids of any shapes that broadcast."""
        h1, h2 = self.entity[h].split(self.dim, -1)
        r1, r2 = self.relation[r].split(self.dim, -1)
        t1, t2 = self.entity[t].split(self.dim, -1)
        return (h1 * r1 * t2).sum(-1) + (h2 * r2 * t1).sum(-1)

    def weights(self, scores: Tensor) -> Tensor:
        """Sigma: softmax of scores rescaled between their 20th and 80th percentile."""
        low = scores.quantile(0.2, dim=1, keepdim=True)
        high = scores.quantile(0.8, dim=1, keepdim=True)
        scaled = ((scores - low) / (high - low).clamp_min(1e-12)).clamp(0, 1)
        return torch.softmax(self.alpha3 * scaled, dim=1)

    @torch.no_grad()
    def update(self, h: Tensor, r: Tensor, t: Tensor, index: Tensor) -> None:
        """Update the head row and the tail row of every triple."""
        for cache, row, head in (
            (self.head_cache, self.head_row[index], True),
            (self.tail_cache, self.tail_row[index], False),
        ):
            fresh = torch.randint(self.num_entities, (len(index), self.n2))
            candidates = torch.cat([cache[row], fresh], dim=1)
            if head:
                scores = self.score(candidates, r[:, None], t[:, None])
            else:
                scores = self.score(h[:, None], r[:, None], candidates)
            kept = torch.multinomial(self.weights(scores), self.n1, replacement=False)
            cache[row] = candidates.gather(1, kept)

    def step(self, index: Tensor) -> float:
        """Sample, update the caches, take the gradient step."""
        h, r, t = self.triples[index].unbind(1)
        place = torch.randint(self.n1, (len(index),))
        replace_head = torch.rand(len(index)) < self.head_probability[r]
        bad_head = self.head_cache[self.head_row[index], place]
        bad_tail = self.tail_cache[self.tail_row[index], place]
        self.update(h, r, t, index)
        positive = self.score(h, r, t)
        negative = self.score(
            torch.where(replace_head, bad_head, h), r, torch.where(replace_head, t, bad_tail)
        )
        loss = softplus(-positive).sum() + softplus(negative).sum()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return loss.item()
