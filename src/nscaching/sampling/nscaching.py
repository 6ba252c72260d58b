"""NSCaching: negatives from a head cache and a tail cache (paper, Section 3.2).

Algorithm ``alg-cache-sample`` is :meth:`NSCachingSampler.begin_epoch` (positives, sigma1) and
:meth:`~NSCachingSampler.sample` (negatives, sigma2); ``alg-cache-update`` is
:meth:`~NSCachingSampler.update_jobs` (sigma3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.kernels.availability import HAVE_NUMBA, HAVE_TRITON
from nscaching.kernels.threads import as_many_threads_as_pay
from nscaching.models import ByteTables, EmbeddingModel, Side
from nscaching.sampling.base import (
    Batch,
    Negatives,
    Sampler,
    Scorer,
    even_weights,
)
from nscaching.sampling.byte_renewal import ByteRenewal
from nscaching.sampling.cache import Cache
from nscaching.sampling.hashing import new_seed
from nscaching.sampling.options import CacheOptions, SamplerOptions
from nscaching.sampling.softmax import log_weights
from nscaching.sampling.variance import VarianceCache


class NSCachingSampler(Sampler):
    """One cache row for every distinct (r, t), holding heads, and (h, r), holding tails."""

    name = "nscaching"
    scores_candidates = True
    own_options = frozenset(
        (*CacheOptions.names(), "preset", "alpha1", "lazy", "pool", "compact", "importance", "nu")
    )

    def __init__(
        self, graph: KnowledgeGraph, options: SamplerOptions, device: torch.device
    ) -> None:
        super().__init__(graph, options, device)
        pairs = {Side.HEAD: graph.rows.head, Side.TAIL: graph.rows.tail}
        self.anchor = {side: _ids(pair.anchor, device) for side, pair in pairs.items()}
        self.relation = {side: _ids(pair.relation, device) for side, pair in pairs.items()}
        self.caches = {
            side: self._make_cache(len(pair.anchor), graph.num_entities)
            for side, pair in pairs.items()
        }
        self.row_of_triple = {side: _ids(pair.of_triple, device) for side, pair in pairs.items()}
        self._updating = torch.tensor(True)  # on the host, and part of the state
        self._renew_from_bytes: ByteRenewal | None = None
        if all(cache.fused_on_cpu for cache in self.caches.values()) and not options.pool:
            self._renew_from_bytes = ByteRenewal(self.caches, self.known, options.candidates)
        #: 1 / (n p) of each triple, where the theory's weights are asked for.
        self._importance: Tensor | None = None
        if options.importance and options.alpha1 > 0:
            self._importance = torch.ones(self.num_triples, device=device)

    def _make_cache(self, rows: int, num_entities: int) -> Cache:
        options = self.options
        if options.nu > 0 and options.alpha2 == 0:
            raise UserError(
                "nu changes nothing while alpha2 is 0, when negatives are drawn evenly. "
                "Set alpha2 above 0, for example 10, or leave nu out."
            )
        shape = (rows, options.cache_size, num_entities, options.rescale, self.device)
        return VarianceCache(*shape, nu=options.nu) if options.nu > 0 else Cache(*shape)

    def prepare(self, scorer: Scorer, generator: torch.Generator) -> None:
        """Fill both caches with uniform negatives; score them where sigma2 will read the scores."""
        for side, cache in self.caches.items():
            cache.fill(self.known[side].contains if self.known else None, generator)
            if self.options.alpha2 > 0:
                cache.rescore(partial(self._score_rows, side, scorer))

    def _score_rows(self, side: Side, scorer: Scorer, rows: Tensor, ids: Tensor) -> Tensor:
        anchor, relation = self.anchor[side][rows].long(), self.relation[side][rows].long()
        return scorer.score_candidates(side, anchor, relation, ids)

    def reads_only_its_rows(self, scorer: Scorer) -> bool:
        """Tell whether candidates are scored from a copy of the rows."""
        return self._bytes_to_renew_from(scorer) is not None

    def _bytes_to_renew_from(self, scorer: Scorer) -> ByteTables | None:
        if self._renew_from_bytes is None or not isinstance(scorer, EmbeddingModel):
            return None
        return scorer.byte_tables()

    def phase(self) -> bool:
        """Return whether this epoch updates the caches."""
        return bool(self._updating)

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> Tensor:
        """Shuffle, or draw positives with sigma1 over the scores in their rows (eq-samp-pos)."""
        self._updating.fill_(epoch % (self.options.lazy + 1) == 0)
        if self.options.alpha1 == 0 or epoch == 0:
            return super().begin_epoch(epoch, generator)
        totals = sum(
            (
                cache.totals()[self.row_of_triple[side].long()]
                for side, cache in self.caches.items()
            ),
            torch.zeros(self.num_triples, device=self.device),
        ).unsqueeze(0)
        everything = torch.ones_like(totals, dtype=torch.bool)
        logits = log_weights(totals, everything, self.options.alpha1, self.options.rescale)
        precise = torch.float32 if self.device.type == "mps" else torch.float64
        cumulative = (logits - logits.max()).squeeze(0).to(precise).exp().cumsum(0)
        uniform = torch.rand(
            self.num_triples, generator=generator, device=self.device, dtype=precise
        )
        if self._importance is not None:
            share = cumulative.diff(prepend=cumulative.new_zeros(1)) / cumulative[-1]
            self._importance.copy_(1 / (self.num_triples * share))
        drawn = torch.searchsorted(cumulative, uniform * cumulative[-1], right=True)
        return drawn.clamp_max_(self.num_triples - 1)

    def sample(self, batch: Batch, scorer: Scorer, generator: torch.Generator) -> Negatives:
        """Draw a side for each negative, then one of that row's entities with sigma2."""
        negatives = self._draw(batch, generator)
        if self._importance is None:
            return negatives
        return replace(negatives, importance=self._importance[batch.index])

    def _draw(self, batch: Batch, generator: torch.Generator) -> Negatives:
        count = self.negatives
        shape = (len(batch.index), 2 * count)
        uniform = torch.rand(shape, generator=generator, device=self.device)
        if self.options.alpha2 == 0 and self.device.type == "cuda" and HAVE_TRITON:
            return self._sample_on_gpu(batch, uniform)
        if self.options.alpha2 == 0 and self.device.type == "cpu" and HAVE_NUMBA:
            return self._sample_on_cpu(batch, uniform)
        replaces_head = self.choose_sides(batch, uniform[:, :count])
        (heads, head_valid), (tails, tail_valid) = (
            self.caches[side].sample_at(uniform[:, count:], batch.rows(side), self.options.alpha2)
            for side in Side
        )
        entities = torch.where(replaces_head, heads, tails)
        valid = torch.where(replaces_head, head_valid, tail_valid)
        return Negatives(entities, replaces_head, even_weights(valid))

    def _sample_on_cpu(self, batch: Batch, uniform: Tensor) -> Negatives:
        """Do the same in one loop, where the rows are sampled evenly."""
        from nscaching.sampling import cpu_kernels

        shape = (len(uniform), self.negatives)
        entities = torch.empty(shape, dtype=torch.int64)
        replaces_head, exists = torch.empty(2, *shape, dtype=torch.bool)
        tensors = (
            self.caches[Side.HEAD].ids,
            self.caches[Side.TAIL].ids,
            batch.head_rows,
            batch.tail_rows,
            batch.relations,
            self.head_probability,
            uniform,
            entities,
            replaces_head,
            exists,
        )
        kernel: Any = cpu_kernels.sample_rows
        with as_many_threads_as_pay(entities.numel()):
            kernel(*(tensor.numpy() for tensor in tensors))
        weight = exists.float() if self.negatives == 1 else even_weights(exists)
        return Negatives(entities, replaces_head, weight)

    def _sample_on_gpu(self, batch: Batch, uniform: Tensor) -> Negatives:
        """Do the same in one kernel, where the rows are sampled evenly."""
        from nscaching.sampling import gpu_kernels

        entities, replaces_head, exists = gpu_kernels.sample(
            (self.caches[Side.HEAD].ids, self.caches[Side.TAIL].ids),
            (batch.head_rows, batch.tail_rows),
            batch.relations,
            self.head_probability,
            uniform,
        )
        weight = exists if self.negatives == 1 else even_weights(exists)
        return Negatives(entities, replaces_head, weight)

    def update_jobs(
        self, batch: Batch, scorer: Scorer, generator: torch.Generator
    ) -> list[Callable[[], None]]:
        """Renew the rows of the batch, each once, from themselves and N2 fresh entities."""
        if not self._updating:
            return []
        tables = self._bytes_to_renew_from(scorer)
        if self._renew_from_bytes is not None and tables is not None:
            seeds = {side: new_seed(generator) for side in Side}
            return [partial(self._renew_from_bytes, batch, tables, self.options.alpha3, seeds)]
        return [partial(self._renew, side, batch, scorer, new_seed(generator)) for side in Side]

    def _renew(self, side: Side, batch: Batch, scorer: Scorer, seed: Tensor) -> None:
        rows, anchor, relation = batch.rows(side), batch.anchor(side), batch.relations
        if self.device.type == "cpu":  # elsewhere renewing a row twice costs less than sorting
            rows = torch.unique(rows)
            anchor, relation = self.anchor[side][rows].long(), self.relation[side][rows].long()
        self.caches[side].renew(
            rows,
            self.options.candidates,
            self.known[side] if self.known else None,
            partial(scorer.score_candidates, side, anchor, relation),
            self.options.alpha3,
            seed,
            partial(scorer.score_pool, side, anchor, relation) if self.options.pool else None,
        )

    def state(self) -> dict[str, Tensor]:
        """Return ids and scores of both caches, and whether this epoch updates them."""
        parts = {
            f"{side.name.lower()}_{part}": getattr(cache, part)
            for side, cache in self.caches.items()
            for part in cache.parts
        }
        if self._importance is not None:
            parts["importance"] = self._importance
        return {**parts, "updating": self._updating}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        for name, mine in self.state().items():
            mine.copy_(state[name])


def _ids(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)
