"""KBGAN and IGAN: negatives picked by a generator that is trained against the model.

Both draw a side for each positive as Bernoulli does, pick with their generator, and after the step
reward it with the score that the model gave to what was picked (paper, Section 2.2.2).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.models import EmbeddingModel
from nscaching.sampling.base import Batch, Candidates, Queries, Sampler, Scorer, answered
from nscaching.sampling.generators import (
    FullGenerator,
    Generator,
    Pairs,
    TransEGenerator,
    full_generator_bytes,
)
from nscaching.sampling.options import SamplerOptions
from nscaching.sampling.softmax import draw_softmax

#: Entities that IGAN draws per negative: the first that is not a known positive is taken.
_DRAWS = 4


class AdversarialSampler(Sampler):
    """What the two have in common: a generator, its warm start and its state."""

    has_generator = True
    own_options = frozenset({"generator_dim", "generator_lr", "generator_epochs"})
    generator: Generator

    def __init__(self, graph: KnowledgeGraph, *given: Any, **named: Any) -> None:
        super().__init__(graph, *given, **named)
        self.generator = self._make_generator((graph.num_entities, graph.num_relations))

    @abstractmethod
    def _make_generator(self, sizes: tuple[int, int]) -> Generator:
        """Return the generator for so many entities and relations."""

    def prepare(self, scorer: Scorer, generator: torch.Generator) -> None:
        """Fill the generator's tables, unless a warm start has."""
        if not self._warm:
            self.generator.initialise(generator)

    def warm_start(self, model: EmbeddingModel) -> None:
        """Start the generator from a trained TransE."""
        self.generator.warm_start(model)
        self._warm = True

    _warm = False

    @property
    def extra_parameters(self) -> int:
        """Count the generator's numbers."""
        return sum(table.numel() for table in self.generator.tables.values())

    def draw_pairs(self, batch: Batch, generator: torch.Generator) -> tuple[Pairs, Tensor, Tensor]:
        """Draw one side per positive; return what stays, the true entities and the rows."""
        replaces_head, targets, rows = self.questions(batch, generator)
        anchor = torch.where(replaces_head, batch.tails, batch.heads)
        return Pairs(anchor, batch.relations, replaces_head), targets, rows

    def state(self) -> dict[str, Tensor]:
        """Return the generator's tables, its Adam and its baseline."""
        return self.generator.state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        self.generator.load_state(state)


class KBGANSampler(AdversarialSampler):
    """A TransE picks one of N1 uniform candidates."""

    name = "kbgan"
    own_options = AdversarialSampler.own_options | {"cache_size"}
    generator: TransEGenerator

    def _make_generator(self, sizes: tuple[int, int]) -> TransEGenerator:
        options = self.options
        return TransEGenerator(sizes, options.generator_dim, options.generator_lr, self.device)

    def sample(self, batch: Batch, generator: torch.Generator) -> Candidates:
        """Draw N1 candidates and let the generator pick among them."""
        pairs, targets, rows = self.draw_pairs(batch, generator)
        size = self.options.cache_size
        candidates = self.uniform_candidates(pairs.replaces_head, rows, size, generator)
        logits = self.generator.logits(pairs, candidates)
        uniform = torch.rand((len(batch), self.negatives), generator=generator, device=self.device)
        picked, self._chances = draw_softmax(logits, uniform)
        self._drawn = pairs, candidates, logits, picked
        return answered(pairs.replaces_head, targets, candidates.gather(1, picked))

    def learn(self, batch: Batch, candidates: Candidates, scores: Tensor, queries: Queries) -> None:
        """Reward the picks with the scores the model gave them."""
        pairs, offered, _, picked = self._drawn
        advantage = self.generator.advantage(scores[:, 1:], candidates.weights)
        # A row without a proper candidate has no advantage, and no chances either.
        self.generator.reinforce(pairs, offered, self._chances, picked, advantage)


class IGANSampler(AdversarialSampler):
    """A network over the fixed pair gives a distribution over all entities."""

    name = "igan"
    own_options = AdversarialSampler.own_options | {"generator_memory"}
    generator: FullGenerator

    def _make_generator(self, sizes: tuple[int, int]) -> FullGenerator:
        options, chunk = self.options, igan_chunk(sizes, self.options)
        settings = options.generator_dim, options.generator_lr, chunk
        return FullGenerator(sizes, *settings, self.device)

    def sample(self, batch: Batch, generator: torch.Generator) -> Candidates:
        """Draw from the whole distribution; of a few draws the first proper negative is taken."""
        pairs, targets, rows = self.draw_pairs(batch, generator)
        shape = (len(batch), self.negatives * _DRAWS)
        uniform = torch.rand(shape, generator=generator, device=self.device)
        drawn = self.generator.draw(pairs, uniform)
        proper = self.without_known(pairs.replaces_head, rows, drawn)
        grouped = proper.view(len(drawn), self.negatives, _DRAWS)
        first = (grouped >= 0).to(torch.int8).argmax(2, keepdim=True)
        self._pairs = pairs
        return answered(pairs.replaces_head, targets, grouped.gather(2, first).squeeze(2))

    def learn(self, batch: Batch, candidates: Candidates, scores: Tensor, queries: Queries) -> None:
        """Reward the picks with the scores the model gave them."""
        advantage = self.generator.advantage(scores[:, 1:], candidates.weights)
        self.generator.reinforce(self._pairs, candidates.negatives.clamp_min(0), advantage)


def igan_chunk(sizes: tuple[int, int], options: SamplerOptions) -> int:
    """Return how many pairs IGAN handles at once within its memory; refuse where none fit."""
    entities = sizes[0]
    tables = 4 * 4 * 2 * options.generator_dim * sum(sizes)  # with gradient and Adam's two moments
    limit = options.generator_memory * 2**20
    row = full_generator_bytes(entities, _DRAWS * (options.negatives or 1))
    if tables + row > limit:
        raise UserError(
            f"IGAN's generator over {entities:,} entities needs {(tables + row) / 2**20:,.0f} MB; "
            f"generator_memory allows {options.generator_memory:,}. Raise it, make generator_dim "
            "smaller, or take another sampler: nscaching needs no generator."
        )
    return max(1, int((limit - tables) // row))
