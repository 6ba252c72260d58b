"""The samplers of the strata that a process owns, as one sampler.

A question of the logistic or margin loss is answered by one stratum, with negatives from its part
of the cache row; the softmax loss takes candidates of all strata. In both cases every stratum
updates its part of the rows of every triple of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor

from nscaching.distributed.shards import FetchingScorer, Shards
from nscaching.distributed.stacked import StackedSampler
from nscaching.distributed.strata import StratumGraph
from nscaching.graph import KnowledgeGraph
from nscaching.models import BatchQueries, EmbeddingModel
from nscaching.sampling import SAMPLERS, Batch, Candidates, Queries, Sampler, SamplerOptions, Scorer
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.sampling.random_state import restore


@dataclass(frozen=True)
class StrataCandidates(Candidates):
    """The questions of a step; ``ids`` are the slots of their true entities, (q, 1)."""

    #: Candidates of each own stratum, as rows of it; their true entities are slots.
    parts: list[Candidates] = field(default_factory=list)
    #: The scores of each part, once they are known.
    scores: list[Tensor] = field(default_factory=list)


@dataclass
class Stratum:
    """One of the strata that this process owns, or all of them where one sampler draws for all."""

    numbers: range
    sampler: Sampler
    generator: torch.Generator | None  #: None for that of the step, which all processes share
    model: EmbeddingModel  #: its rows of the entity table


class StrataSampler(Sampler):
    """Asks the sampler of every stratum; only the own ones exist here."""

    name = "strata"

    def __init__(
        self,
        shards: Shards,
        model: EmbeddingModel,
        graph: KnowledgeGraph,
        options: SamplerOptions,
        name: str,
        *,
        both_sides: bool,
    ) -> None:
        self.shards, self.model, self.device = shards, model, shards.device
        self.both_sides, self.num_triples = both_sides, len(graph.train)
        shared = _shared(options, shards.strata.count, graph.num_entities, name, both_sides)
        self.parts = []
        if name == NSCachingSampler.name and not both_sides and not shared.pool:
            stacked = StackedSampler(shards, model, graph, shared)
            self.parts.append(Stratum(shards.own, stacked, None, model))
        for number in shards.own if not self.parts else ():
            seen = cast(KnowledgeGraph, StratumGraph.of(graph, shards.strata, [number]))
            sampler = SAMPLERS[name](seen, shared, self.device, both_sides=both_sides)
            generator = shards.strata.generator(number, self.device)
            rows = model.at(shards.rows(number))
            self.parts.append(Stratum(range(number, number + 1), sampler, generator, rows))
        first = self.parts[0].sampler
        for part in self.parts[1:]:  # all caches have the same rows
            if isinstance(first, NSCachingSampler) and isinstance(part.sampler, NSCachingSampler):
                for side, cache in part.sampler.caches.items():
                    cache.first_places = first.caches[side].first_places
        self.reads_other_rows = first.reads_other_rows or (
            first.scores_candidates and model.int8 is None
        )

    def prepare(self, scorer: Scorer, generator: torch.Generator) -> None:
        """Fill the caches of the own strata."""
        for part in self.parts:
            if part.generator is None:  # a sampler of all strata fetches by itself
                part.sampler.prepare(scorer, generator)
            else:
                fetching = FetchingScorer(self.shards, self.model, part.numbers[0])
                part.sampler.prepare(fetching, part.generator)

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> Tensor:
        """Return the order of an epoch, which is the same in every process."""
        for part in self.parts:
            part.sampler.note_epoch(epoch)
        return super().begin_epoch(epoch, generator)

    def sample(self, batch: Batch, generator: torch.Generator) -> StrataCandidates:
        """Return the questions of this process with the candidates of its strata."""
        parts = [self._sample(part, batch, generator) for part in self.parts]
        asked = parts[:1] if self.both_sides else parts
        ids = torch.cat([part.ids[:, :1] for part in asked])
        replaces_head = torch.cat([part.replaces_head for part in asked])
        nothing = ids.new_empty(len(ids), 0, dtype=torch.float32)
        everything = parts[0].all_entities
        return StrataCandidates(replaces_head, ids, nothing, all_entities=everything, parts=parts)

    def _sample(self, part: Stratum, batch: Batch, generator: torch.Generator) -> Candidates:
        """Let a stratum draw for its block of the batch, or for all of it."""
        block = slice(0, len(batch))
        if not self.both_sides:
            block = self.shards.strata.block(part.numbers, len(batch))
        if part.generator is None:
            drawn = part.sampler.sample(batch, generator)
        else:
            some, number = batch.at(block), part.numbers[0]
            heads, tails = (self.shards.local(each, number) for each in (some.heads, some.tails))
            drawn = part.sampler.sample(replace(some, heads=heads, tails=tails), part.generator)
        triples = torch.arange(block.start, block.stop, device=self.device)
        triples = triples.repeat(2) if self.both_sides else triples
        slots = 2 * triples + (~drawn.replaces_head).long()
        return replace(drawn, ids=torch.cat([slots.unsqueeze(1), drawn.ids[:, 1:]], dim=1))

    def update_jobs(
        self, batch: Batch, queries: Queries, generator: torch.Generator
    ) -> list[Callable[[], None]]:
        """Return the updates of the own parts of the rows of the batch."""
        assert isinstance(queries, BatchQueries)
        jobs = []
        for part in self.parts:
            own = part.generator or generator
            jobs += part.sampler.update_jobs(batch, queries.over(part.model), own)
        return jobs

    def phase(self) -> bool:
        """Return what decides, besides shapes, which operations a step is made of."""
        return self.parts[0].sampler.phase()

    def learn(self, batch: Batch, candidates: Candidates, scores: Tensor, queries: Queries) -> None:
        """Tell each stratum how its candidates scored."""
        assert isinstance(candidates, StrataCandidates)
        given = zip(self.parts, candidates.parts, candidates.scores, strict=False)
        for part, drawn, found in given:
            part.sampler.learn(batch, drawn, found, queries)

    def state(self) -> dict[str, Tensor]:
        """Return what every own stratum keeps, under its number, and its random numbers."""
        found = {}
        for part in self.parts:
            if part.generator is None:
                return part.sampler.state()
            number = part.numbers[0]
            for name, tensor in part.sampler.state().items():
                found[f"{number}.{name}"] = tensor
            found[f"{number}.random"] = part.generator.get_state()
        return found

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        for part in self.parts:
            if part.generator is None:
                part.sampler.load_state(state)
                return
            names, number = part.sampler.state(), part.numbers[0]
            part.sampler.load_state({name: state[f"{number}.{name}"] for name in names})
            restore(part.generator, state[f"{number}.random"])


def _shared(
    options: SamplerOptions, count: int, num_entities: int, name: str, both_sides: bool
) -> SamplerOptions:
    """Return the options of one of so many strata: each has its share of a row's candidates."""

    def share(number: int) -> int:
        return -(-number // count)

    negatives = options.negatives or SAMPLERS[name].usual_negatives
    return replace(
        options,
        cache_size=share(min(options.cache_size, num_entities // count * count)),
        candidates=share(options.candidates),
        pool=share(options.pool),
        negatives=share(negatives) if both_sides else negatives,
    )
