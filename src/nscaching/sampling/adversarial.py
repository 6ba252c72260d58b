"""KBGAN and IGAN: negatives picked by a generator that is trained against the model.

Both draw a side for each positive as Bernoulli does, pick with their generator, and after the step
reward it with the score that the model gave to what was picked (paper, Section 2.2.2).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.models import EmbeddingModel, Side
from nscaching.sampling.base import (
    Batch,
    Negatives,
    Sampler,
    Scorer,
    even_weights,
)
from nscaching.sampling.generators import FullGenerator, Generator, Pairs, TransEGenerator
from nscaching.sampling.options import SamplerOptions
from nscaching.sampling.softmax import draw_at

#: Entities IGAN draws for a negative: the first that is not a known positive is taken.
_DRAWS = 4


class AdversarialSampler(Sampler):
    """What the two have in common: a generator, its warm start and its state."""

    has_generator = True
    own_options = frozenset({"generator_dim", "generator_lr", "generator_epochs"})
    generator: Generator

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
        return self.generator.parameter_count

    def draw_pairs(self, batch: Batch, generator: torch.Generator) -> Pairs:
        """Draw one side a positive and return what stays."""
        replaces_head = self.draw_sides(batch, 1, generator).squeeze(1)
        anchor = torch.where(replaces_head, batch.anchor(Side.HEAD), batch.anchor(Side.TAIL))
        return Pairs(anchor, batch.relations, replaces_head)

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

    def __init__(
        self, graph: KnowledgeGraph, options: SamplerOptions, device: torch.device
    ) -> None:
        super().__init__(graph, options, device)
        sizes = graph.num_entities, graph.num_relations
        self.generator = TransEGenerator(sizes, options.generator_dim, options.generator_lr, device)

    def sample(self, batch: Batch, scorer: Scorer, generator: torch.Generator) -> Negatives:
        """Draw N1 candidates and let the generator pick among them."""
        pairs = self.draw_pairs(batch, generator)
        sides = pairs.replaces_head.unsqueeze(1)
        shape = (len(batch.index), self.options.cache_size)
        candidates, valid = self.uniform_negatives(batch, sides.expand(shape), generator)
        scores = self.generator.logits(pairs, candidates)
        uniform = torch.rand(
            (len(batch.index), self.negatives), generator=generator, device=self.device
        )
        picked = draw_at(uniform, scores, valid, 1.0, "none")
        self._drawn = pairs, candidates, scores.masked_fill(~valid, -math.inf), picked
        weight = even_weights(valid.gather(1, picked))
        return Negatives(candidates.gather(1, picked), sides.expand_as(picked), weight)

    def learn(self, batch: Batch, negatives: Negatives, scores: Tensor) -> None:
        """Reward the picks with the scores the model gave them."""
        pairs, candidates, logits, picked = self._drawn
        advantage = self.generator.advantage(scores, negatives.weight > 0)
        # A row without a proper candidate has no advantage either.
        chances = logits.softmax(1).nan_to_num(0.0)
        self.generator.reinforce(pairs, candidates, chances, picked, advantage)


class IGANSampler(AdversarialSampler):
    """A network over the fixed pair gives a distribution over all entities."""

    name = "igan"
    own_options = AdversarialSampler.own_options | {"generator_memory"}
    generator: FullGenerator

    def __init__(
        self, graph: KnowledgeGraph, options: SamplerOptions, device: torch.device
    ) -> None:
        super().__init__(graph, options, device)
        sizes = graph.num_entities, graph.num_relations
        chunk = igan_chunk(sizes, options)
        self.generator = FullGenerator(
            sizes, options.generator_dim, options.generator_lr, chunk, device
        )

    def sample(self, batch: Batch, scorer: Scorer, generator: torch.Generator) -> Negatives:
        """Draw from the whole distribution; of a few draws the first proper negative is taken."""
        pairs = self.draw_pairs(batch, generator)
        shape = (len(batch.index), self.negatives * _DRAWS)
        uniform = torch.rand(shape, generator=generator, device=self.device)
        drawn = self.generator.draw(pairs, uniform)
        sides = pairs.replaces_head.unsqueeze(1)
        proper = ~self.is_known(batch, sides.expand(shape), drawn)
        grouped = proper.view(len(drawn), self.negatives, _DRAWS)
        first = grouped.to(torch.int8).argmax(2, keepdim=True)
        entities = drawn.view_as(grouped).gather(2, first).squeeze(2)
        weight = even_weights(grouped.any(2))
        self._pairs = pairs
        return Negatives(entities, sides.expand_as(entities), weight)

    def learn(self, batch: Batch, negatives: Negatives, scores: Tensor) -> None:
        """Reward the picks with the scores the model gave them."""
        advantage = self.generator.advantage(scores, negatives.weight > 0)
        self.generator.reinforce(self._pairs, negatives.entities, advantage)


def igan_chunk(sizes: tuple[int, int], options: SamplerOptions) -> int:
    """Return how many pairs IGAN handles at once within its memory; refuse where none fit."""
    entities = sizes[0]
    tables = igan_table_bytes(sizes, options.generator_dim)
    limit = options.generator_memory * 2**20
    row = 3 * 4 * entities  # logits, probabilities and their running sum
    if tables + row > limit:
        raise UserError(
            f"IGAN's generator over {entities:,} entities needs {(tables + row) / 2**20:,.0f} MB; "
            f"generator_memory allows {options.generator_memory:,}. Raise it, make generator_dim "
            "smaller, or take another sampler: nscaching needs no generator."
        )
    return max(1, int((limit - tables) // row))


def igan_table_bytes(sizes: tuple[int, int], dim: int) -> int:
    """Return what the tables, their gradient and Adam's two moments take."""
    return 4 * 4 * 2 * dim * sum(sizes)
