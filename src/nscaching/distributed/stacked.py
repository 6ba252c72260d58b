"""The cache rows of all strata of a process, updated and drawn from in one pass.

Rows of the first stratum come first, then those of the second; each holds rows of its stratum. With
one sampler per stratum a step of four strata would take four times as many kernels, each a quarter
as large. Noise is hashed from the row of the run, not of the process, so that nothing depends on
who owns a stratum.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from nscaching.distributed.shards import FetchingScorer, Shards
from nscaching.distributed.strata import StratumGraph
from nscaching.graph import KnowledgeGraph
from nscaching.kernels.hashing import GOLDEN, new_seed
from nscaching.models import BatchQueries, EmbeddingModel, Side
from nscaching.sampling import Batch, Candidates, Queries, SamplerOptions, Scorer
from nscaching.sampling.cache import Cache, FirstPlaces
from nscaching.sampling.nscaching import NSCachingSampler


class StackedSampler(NSCachingSampler):
    """NSCaching over the own strata; a question is answered by the stratum of its block."""

    def __init__(
        self, shards: Shards, model: EmbeddingModel, graph: KnowledgeGraph, options: SamplerOptions
    ) -> None:
        strata, own = shards.strata, shards.own
        seen = cast(KnowledgeGraph, StratumGraph.of(graph, strata, own))
        super().__init__(seen, options, shards.device)
        self._shards, self._strata, self._model = shards, strata, model
        self._models = [model.at(shards.rows(number)) for number in own]
        #: Pairs of each side, and where the rows of each stratum begin, (strata, 1).
        self._pairs_of = {Side.HEAD: len(graph.rows.head), Side.TAIL: len(graph.rows.tail)}
        places = torch.arange(len(own), device=self.device).unsqueeze(1)
        self._starts = {side: places * count for side, count in self._pairs_of.items()}
        #: Which of the own strata answers each question of a block, by the size of the batch.
        self._answering: dict[int, Tensor] = {}
        sizes = torch.tensor([strata.size(number) for number in own], device=self.device)
        for side, cache in self.caches.items():
            cache.sizes = sizes
            cache.first_places = FirstPlaces(self._pairs_of[side] if places.is_cpu else 0)
        if self._int8_update is not None:
            first = [shards.rows(number).start for number in own]
            self._int8_update.parts = np.stack([first, sizes.numpy()], axis=1)

    def _views(self, side: Side) -> list[Cache]:
        """Return the cache of each own stratum, which changes with this one."""
        found, count = [], self._pairs_of[side]
        for place, number in enumerate(self._shards.own):
            view = copy(self.caches[side])
            for part in view.parts:
                setattr(view, part, getattr(view, part)[place * count :][:count])
            view.num_entities, view.sizes = self._strata.size(number), None
            found.append(view)
        return found

    def prepare(self, scorer: Scorer, generator: torch.Generator) -> None:
        """Fill the caches of each stratum by its own random numbers."""
        own = self._shards.own
        drawn = [self._strata.generator(number, self.device) for number in own]
        for side in Side:
            for place, view in enumerate(self._views(side)):
                known = None if self.known is None else partial(self._is_known, side, place)
                view.fill(known, drawn[place])
                if self.options.alpha2 > 0:
                    fetching = FetchingScorer(self._shards, self._model, own[place])
                    view.rescore(partial(self._score_rows, side, fetching))

    def _is_known(self, side: Side, place: int, rows: Tensor, ids: Tensor) -> Tensor:
        assert self.known is not None
        return self.known[side].contains(rows + place * self._pairs_of[side], ids)

    def _draw(self, batch: Batch, generator: torch.Generator) -> Candidates:
        """Draw for the questions of this process; all processes draw the same numbers."""
        shape = (len(batch), 1 + self.negatives)
        uniform = torch.rand(shape, generator=generator, device=self.device)
        block = self._shards.block(len(batch))
        if len(batch) not in self._answering:
            ends, triples = self._shards.ends(len(batch)), torch.arange(block.start, block.stop)
            places = torch.searchsorted(ends, triples, right=True)
            self._answering[len(batch)] = places.to(self.device)
        answering, some = self._answering[len(batch)], batch.at(block)
        starts = (self._starts[side][answering, 0] for side in Side)
        head_rows, tail_rows = (
            rows + start
            for rows, start in zip((some.head_rows, some.tail_rows), starts, strict=True)
        )
        asked = replace(some, head_rows=head_rows, tail_rows=tail_rows)
        drawn = self._draw_at(asked, uniform[block].contiguous())
        first = (answering * self._strata.stride).unsqueeze(1)
        negatives = drawn.negatives
        rows = torch.where(negatives < 0, negatives, negatives + first)
        return replace(drawn, ids=torch.cat([drawn.ids[:, :1], rows], dim=1))

    def _new_seed(self, side: Side, generator: torch.Generator) -> Tensor:
        """Draw a seed, shifted so that a row of this process has the hash of its row of the run."""
        bits = self._shards.own.start * self._pairs_of[side] * GOLDEN & (1 << 64) - 1
        return new_seed(generator) + (bits - (1 << 64) if bits >= 1 << 63 else bits)

    def _rows_and_places(self, side: Side, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the rows of the batch in every own stratum, and where one stands first."""
        rows, first = super()._rows_and_places(side, batch)
        parts = torch.arange(len(self._models)).unsqueeze(1) * len(batch)
        return (rows + self._starts[side]).view(-1), (first + parts).view(-1)

    def _update(self, side: Side, batch: Batch, queries: Queries, seed: Tensor) -> None:
        assert isinstance(queries, BatchQueries)
        rows, cache, places = batch.rows(side), self.caches[side], None
        if self.device.type == "cpu":
            places = cache.first_places(rows)
            rows = rows[places]
        query = queries.query(side, places)

        def score(ids: Tensor) -> Tensor:
            parts = zip(self._models, ids.chunk(len(self._models)), strict=True)
            return torch.cat([model.score_ids(query, part) for model, part in parts])

        known = self.known[side] if self.known else None
        stacked = (rows + self._starts[side]).view(-1)
        cache.update(stacked, self.options.candidates, known, score, self.options.alpha3, seed)

    def state(self) -> dict[str, Tensor]:
        """Return ids and scores of each stratum under its number; nothing is copied."""
        found = {}
        for side in Side:
            for number, view in zip(self._shards.own, self._views(side), strict=True):
                for part in view.parts:
                    found[f"{number}.{side.name.lower()}_{part}"] = getattr(view, part)
        return {**found, **{f"{number}.updating": self._updating for number in self._shards.own}}
