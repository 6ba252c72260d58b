"""NSCaching: negatives from a head cache and a tail cache (paper, Section 3.2).

Algorithm ``alg-cache-sample`` is :meth:`NSCachingSampler.begin_epoch` (positives, sigma1) and
:meth:`~NSCachingSampler.sample` (negatives, sigma2); ``alg-cache-update`` is
:meth:`~NSCachingSampler.update_jobs` (sigma3).

With the softmax loss both questions of a triple are answered by their whole row and N2 uniform
entities, and the row is updated from the scores of those, so that candidates are scored once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.kernels.hashing import new_seed
from nscaching.kernels.registry import CPU, compiled_for, kernel
from nscaching.models import BatchQueries, Side
from nscaching.sampling.base import (
    Batch,
    Candidates,
    Queries,
    Sampler,
    Scorer,
    answered,
    even_weights,
)
from nscaching.sampling.cache import PADDING, Cache, VarianceCache, repeats
from nscaching.sampling.int8_update import Int8Update
from nscaching.sampling.options import CacheOptions, SamplerOptions
from nscaching.sampling.pool import hardest
from nscaching.sampling.softmax import log_weights


class NSCachingSampler(Sampler):
    """One cache row for every distinct (r, t), holding heads, and (h, r), holding tails."""

    name = "nscaching"
    scores_candidates = True
    both_sides_possible = True
    own_options = frozenset(
        (
            *CacheOptions.names(),
            *("preset", "alpha1", "lazy", "pool", "int8", "importance", "nu", "cache_memory"),
        )
    )

    def __init__(
        self,
        graph: KnowledgeGraph,
        options: SamplerOptions,
        device: torch.device,
        *,
        both_sides: bool = False,
    ) -> None:
        super().__init__(graph, options, device, both_sides=both_sides)
        self._pairs = graph.rows
        self.caches = {
            side: self._make_cache(len(self._pairs[side].offsets) - 1, graph.num_entities)
            for side in Side
        }
        self._updating = torch.tensor(True)  # on the host, and part of the state
        self._seeds = torch.zeros(2, dtype=torch.int64, device=device)
        self._int8_update: Int8Update | None = None
        kernels = compiled_for(device) == CPU and self.caches[Side.HEAD].has_kernels
        if kernels and not options.pool and not both_sides:
            self._int8_update = Int8Update(self.caches, self.known, options.candidates)
        #: Candidates are scored from a copy of the rows, or are candidates of the loss too.
        self.reads_other_rows = self._int8_update is None
        #: 1 / (n p) of each triple, where the theory's weights are asked for.
        self._importance: Tensor | None = None
        if options.importance and options.alpha1 > 0:
            self._importance = torch.ones(self.num_triples, device=device)

    # These are on the device from the first time that they are asked for: few runs need them.

    @cached_property
    def anchor(self) -> dict[Side, Tensor]:
        """The entity that each row is about, int32 (rows,)."""
        return {side: _ids(self._pairs[side].anchor, self.device) for side in Side}

    @cached_property
    def relation(self) -> dict[Side, Tensor]:
        """The relation that each row is about, int32 (rows,)."""
        return {side: _ids(self._pairs[side].relation, self.device) for side in Side}

    @cached_property
    def row_of_triple(self) -> dict[Side, Tensor]:
        """The row of each training triple, int32 (triples,)."""
        return {side: _ids(self._pairs[side].of_triple, self.device) for side in Side}

    def _make_cache(self, rows: int, num_entities: int) -> Cache:
        options = self.options
        if options.nu > 0 and options.alpha2 == 0:
            raise UserError(
                "nu changes nothing while alpha2 is 0, when negatives are drawn evenly. "
                "Set alpha2 above 0, for example 10, or do without nu."
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

    def phase(self) -> bool:
        """Return whether this epoch updates the caches."""
        return bool(self._updating)

    def note_epoch(self, epoch: int) -> None:
        """Decide whether this epoch updates the caches."""
        self._updating.fill_(epoch % (self.options.lazy + 1) == 0)

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> Tensor:
        """Shuffle, or draw positives with sigma1 over the scores in their rows (eq-samp-pos)."""
        self.note_epoch(epoch)
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

    def sample(self, batch: Batch, generator: torch.Generator) -> Candidates:
        """Draw a side per triple, then entities of its row with sigma2; or take whole rows."""
        candidates = (
            self._whole_rows(batch, generator) if self.both_sides else self._draw(batch, generator)
        )
        if self._importance is None:
            return candidates
        importance = self._importance[batch.index]
        return replace(
            candidates, importance=importance.repeat(2) if self.both_sides else importance
        )

    def _draw(self, batch: Batch, generator: torch.Generator) -> Candidates:
        shape = (len(batch), 1 + self.negatives)
        uniform = torch.rand(shape, generator=generator, device=self.device)
        return self._draw_at(batch, uniform)

    def _draw_at(self, batch: Batch, uniform: Tensor) -> Candidates:
        """Draw a side and entities with given random numbers in [0, 1), (b, 1 + k)."""
        if self.options.alpha2 == 0:
            caches = self.caches[Side.HEAD].ids, self.caches[Side.TAIL].ids
            both = ((batch.head_rows, batch.tail_rows), (batch.heads, batch.tails))
            chances = (batch.relations, self.head_probability)
            replaces_head, ids, exists = sample_rows(caches, *both, chances, uniform)
            return Candidates(replaces_head, ids, even_weights(exists))
        replaces_head = uniform[:, 0] < self.head_probability[batch.relations]
        heads, tails = (
            self.caches[side].sample_at(uniform[:, 1:], batch.rows(side), self.options.alpha2)
            for side in Side
        )
        targets = torch.where(replaces_head, batch.heads, batch.tails)
        return answered(
            replaces_head, targets, torch.where(replaces_head.unsqueeze(1), heads, tails)
        )

    def _whole_rows(self, batch: Batch, generator: torch.Generator) -> Candidates:
        """Return both questions of every triple with their rows and with uniform entities.

        Uniform ones are a pool that the batch shares, or N2 per question. Each stands for its share
        of the other entities. The true entity and repeats have no weight; known positives have one.
        """
        replaces_head, targets, _ = self.questions(batch, generator)
        for side in Side:
            self._seeds[side] = new_seed(generator)[0]
        rows = torch.cat([self.caches[side].ids[batch.rows(side)] for side in Side]).long()
        true = targets.unsqueeze(1)
        if self.options.pool:
            pool = self.draw_pool(generator)
            weights = ((rows != PADDING) & (rows != true)).float()
            given = answered(replaces_head, targets, rows, weights)
            shared = pool.weights_without(given.ids)
            return replace(given, pool=pool.ids, pool_weights=shared)
        fresh = [
            self.caches[side].fresh(
                batch.rows(side), self.options.candidates, self._seeds[side : side + 1]
            )
            for side in Side
        ]
        ids = torch.cat([rows, torch.cat(fresh)], dim=1)
        size = rows.shape[1]
        share = (self.num_entities - size) / max(1, ids.shape[1] - size)
        counts = torch.full((1, ids.shape[1]), max(share, 1.0), device=self.device)
        counts[:, :size] = 1
        valid = (ids != PADDING) & (ids != true) & ~repeats(ids)
        return answered(replaces_head, targets, ids, valid * counts)

    def update_jobs(
        self, batch: Batch, queries: Queries, generator: torch.Generator
    ) -> list[Callable[[], None]]:
        """Update the rows of the batch, each once, from themselves and N2 fresh entities."""
        if not self._updating or self.both_sides:  # those are updated from the scores of the loss
            return []
        seeds = {side: self._new_seed(side, generator) for side in Side}
        table = queries.model.int8 if isinstance(queries, BatchQueries) else None
        if self._int8_update is not None and table is not None:
            assert isinstance(queries, BatchQueries)
            rows = {side: self._rows_and_places(side, batch) for side in Side}
            alpha = self.options.alpha3
            return [partial(self._int8_update, rows, queries, table, alpha, seeds)]
        return [partial(self._update, side, batch, queries, seeds[side]) for side in Side]

    def _new_seed(self, side: Side, generator: torch.Generator) -> Tensor:
        """Draw what decides how the rows of a side are updated."""
        return new_seed(generator)

    def _rows_and_places(self, side: Side, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the rows of a batch (b,), and where one stands for the first time (m,)."""
        rows = batch.rows(side)
        return rows, self.caches[side].first_places(rows)

    def _update(self, side: Side, batch: Batch, queries: Queries, seed: Tensor) -> None:
        rows, cache = batch.rows(side), self.caches[side]
        places = None
        if self.device.type == "cpu":  # elsewhere scoring a row twice costs less than sorting
            places = cache.first_places(rows)
            rows = rows[places]
        known = self.known[side] if self.known else None
        alpha, count = self.options.alpha3, self.options.candidates
        score = partial(queries.score, side, places=places)
        if not self.options.pool:
            cache.update(rows, count, known, score, alpha, seed)
            return
        pool = cache.fresh(torch.zeros_like(rows[:1]), self.options.pool, seed)[0]
        fresh = pool.expand(len(rows), -1)
        if known is not None:
            fresh = fresh.masked_fill(known.contains(rows, fresh), PADDING)
        held = cache.ids[rows].long()
        scores = torch.cat([score(held), queries.score_pool(side, pool, places=places)], dim=1)
        cache.keep(rows, torch.cat([held, fresh], dim=1), scores, alpha, seed)

    def learn(self, batch: Batch, candidates: Candidates, scores: Tensor, queries: Queries) -> None:
        """Update whole rows from the scores of the loss, those of the shared pool included."""
        if not self.both_sides or not self._updating:
            return
        ids, found = candidates.negatives, scores[:, 1 : candidates.ids.shape[1]]
        if candidates.pool is not None:
            ids, found = self._with_hardest(candidates, scores)
        for side, place in ((Side.HEAD, 0), (Side.TAIL, len(batch))):
            part = slice(place, place + len(batch))
            rows, cache = batch.rows(side), self.caches[side]
            offered, of_offered = ids[part], found[part]
            if self.device.type == "cpu":  # with dropout, questions of one row score differently
                places = cache.first_places(rows)
                rows, offered, of_offered = rows[places], offered[places], of_offered[places]
            if self.known is not None:
                offered = offered.masked_fill(self.known[side].contains(rows, offered), PADDING)
            seed = self._seeds[side : side + 1]
            cache.keep(rows, offered, of_offered, self.options.alpha3, seed)

    def _with_hardest(self, candidates: Candidates, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Add to candidates of their own the N1 hardest of the pool. Shapes: (q, k), (q, k)."""
        assert candidates.pool is not None
        assert candidates.pool_weights is not None
        size = min(self.caches[Side.HEAD].size, len(candidates.pool))
        ids, values = hardest(scores, candidates.pool_weights, candidates.pool, size)
        return (
            torch.cat([candidates.negatives, ids], dim=1),
            torch.cat([scores[:, 1 : candidates.ids.shape[1]], values], dim=1),
        )

    def state(self) -> dict[str, Tensor]:
        """Return ids and scores of both caches, and whether this epoch updates them."""
        parts = {
            f"{side.word}_{part}": getattr(cache, part)
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


@kernel(cpu="cache_cpu", gpu="cache_gpu")
def sample_rows(
    caches: tuple[Tensor, Tensor],
    rows: tuple[Tensor, Tensor],
    targets: tuple[Tensor, Tensor],
    chances: tuple[Tensor, Tensor],
    uniform: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw a side and, evenly, entities of its row: eq-samp-neg with alpha2 = 0.

    Pairs have the head's side first; ``chances`` are relations (b,) and for each relation the
    probability of replacing the head; ``uniform`` (b, 1 + k) decides the side, then the entities.
    Returns whether heads are replaced (b,), ids (b, 1 + k): the true entity, then the drawn ones,
    -1 from an empty row, and 1.0 for each drawn one that exists (b, k).
    """
    relations, head_probability = chances
    replaces_head = uniform[:, 0] < head_probability[relations]
    drawn = []
    for ids, row in zip(caches, rows, strict=True):
        held = (ids[row] != PADDING).sum(1, keepdim=True)
        place = (uniform[:, 1:] * held).long().minimum(held - 1).clamp_min(0)
        drawn.append(ids[row].gather(1, place).long())
    found: Tensor = torch.where(replaces_head.unsqueeze(1), drawn[0], drawn[1])
    true = torch.where(replaces_head, targets[0], targets[1]).unsqueeze(1)
    return replaces_head, torch.cat([true, found], dim=1), (found >= 0).float()
