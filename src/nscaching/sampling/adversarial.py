"""KBGAN and IGAN: negatives picked by a generator that is trained against the model.

Both draw a side for each positive as Bernoulli does, pick with their generator, and after the step
reward it with the score that the model gave to what was picked (paper, Section 2.2.2).

A generator is a trainable distribution over entities given a fixed pair. It learns by REINFORCE:
the gradient of ``(reward - baseline) * log p(picked)``, where the baseline is the moving average of
the reward. The gradient of log p with respect to the logits is ``onehot(picked) - p``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.kernels.hashing import new_seed
from nscaching.models import SCORING, EmbeddingModel, ScoringFunction
from nscaching.models.match import Query
from nscaching.optim import Adam, Gradients, RowGradients
from nscaching.sampling.base import Batch, Candidates, Queries, Sampler, Scorer, answered
from nscaching.sampling.options import SamplerOptions
from nscaching.sampling.softmax import draw_at

#: Entities that IGAN draws per negative: the first that is not a known positive is taken.
_DRAWS = 4
#: How much of the moving average of the reward a step keeps.
_BASELINE_DECAY = 0.95


class Pairs(NamedTuple):
    """The fixed part of each triple of a batch, with the side that is asked for. Shapes: (b,)."""

    anchor: Tensor
    relation: Tensor
    replaces_head: Tensor


class Generator(ABC):
    """Two tables of its own, their Adam, and the baseline of the reward."""

    def __init__(self, sizes: tuple[int, int], width: int, lr: float, device: torch.device) -> None:
        entities, relations = sizes
        self.tables = {
            "entity": torch.zeros(entities, width, device=device),
            "relation": torch.zeros(relations, width, device=device),
        }
        self.adam = Adam(self.tables, lr, weight_decay=0.0)
        self.baseline = torch.zeros((), device=device)
        self._rewarded = torch.zeros((), device=device)  #: 1 after the first reward

    @abstractmethod
    def initialise(self, generator: torch.Generator) -> None:
        """Fill the tables at random."""

    @abstractmethod
    def warm_start(self, model: EmbeddingModel) -> None:
        """Take over what a TransE has learned."""

    def advantage(self, reward: Tensor, counts: Tensor) -> Tensor:
        """Return reward minus baseline where it counts, else 0, and move the baseline on.

        Shapes: (b, k), (b, k) -> (b, k). The first mean reward is the first baseline.
        """
        counts = counts.to(reward.dtype)
        reward = torch.where(counts > 0, reward, 0)  # padding has none
        mean = (reward * counts).sum() / counts.sum().clamp_min(1)
        self.baseline.copy_(torch.where(self._rewarded > 0, self.baseline, mean))
        advantage = (reward - self.baseline) * counts
        self.baseline.lerp_(mean, 1 - _BASELINE_DECAY)
        self._rewarded.fill_(1)
        return advantage

    def state(self) -> dict[str, Tensor]:
        """Return everything a checkpoint must hold."""
        adam = {f"adam.{name}": tensor for name, tensor in self.adam.state().items()}
        baseline = {"baseline": self.baseline, "rewarded": self._rewarded}
        return {**self.tables, **adam, **baseline}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        prefix = "adam."
        for name, mine in self.state().items():
            if not name.startswith(prefix):
                mine.copy_(state[name])
        self.adam.load_state(
            {name[len(prefix) :]: t for name, t in state.items() if name.startswith(prefix)}
        )


class TransEGenerator(Generator):
    """KBGAN's: a softmax of TransE scores over a few candidates."""

    def __init__(self, sizes: tuple[int, int], dim: int, lr: float, device: torch.device) -> None:
        self.scoring: ScoringFunction = SCORING["transe"](dim)
        super().__init__(sizes, dim, lr, device)

    def initialise(self, generator: torch.Generator) -> None:
        """Fill the tables as those of a model are."""
        on_cpu = torch.Generator().manual_seed(int(new_seed(generator)))
        entity, relation = (torch.empty(table.shape) for table in self.tables.values())
        self.scoring.init_(entity, relation, on_cpu)
        self.tables["entity"].copy_(entity)
        self.tables["relation"].copy_(relation)

    def warm_start(self, model: EmbeddingModel) -> None:
        """Take over the tables."""
        for name, table in model.state().items():
            self.tables[name].copy_(table)

    def logits(self, pairs: Pairs, candidates: Tensor) -> Tensor:
        """Score candidates, -1 as -inf. Shapes: (b,) each, (b, k) -> (b, k)."""
        e, r = self._rows(pairs)
        return self.scoring.match.forward(
            self._query(pairs, e, r), self.tables["entity"], candidates
        )

    def _rows(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        return self.tables["entity"][pairs.anchor], self.tables["relation"][pairs.relation]

    def _query(self, pairs: Pairs, e: Tensor, r: Tensor) -> Query:
        heads, tails = self.scoring.head_query(r, e), self.scoring.tail_query(e, r)
        return Query(torch.where(pairs.replaces_head.unsqueeze(1), heads, tails))

    def reinforce(
        self, pairs: Pairs, candidates: Tensor, chances: Tensor, picked: Tensor, advantage: Tensor
    ) -> None:
        """Make picks with an advantage more likely.

        ``chances`` are those the picks were drawn with. Shapes: (b, n) twice, (b, k) twice.
        """
        d_scores = chances * advantage.sum(1, keepdim=True)
        d_scores.scatter_add_(1, picked, -advantage)  # sum of A (p - onehot): Adam goes downhill
        e, r = (rows.requires_grad_() for rows in self._rows(pairs))
        with torch.enable_grad():
            query = self._query(pairs, e, r)
        found = self.scoring.match.backward(
            query.detach(), self.tables["entity"], candidates, d_scores
        )
        d_e, d_r = torch.autograd.grad(query.vectors, [e, r], found.query)
        ids = torch.cat([candidates.clamp_min(0).reshape(-1), pairs.anchor])
        rows = torch.cat([found.rows, d_e])
        relation = RowGradients(pairs.relation, d_r)
        self.adam.step({"entity": [RowGradients(ids, rows)], "relation": [relation]})


class FullGenerator(Generator):
    """IGAN's: a small network over the fixed pair, and a softmax over all entities.

    ``logits = (tanh(in[anchor] + s r1) + s r2) . out`` with ``s`` = 1 where the tail is asked for
    and -1 where the head is. Rows: entity [in, out], relation [r1, r2]. Logits of ``chunk`` pairs
    are held at once.
    """

    def __init__(
        self, sizes: tuple[int, int], dim: int, lr: float, chunk: int, device: torch.device
    ) -> None:
        self.dim, self.chunk = dim, chunk
        super().__init__(sizes, 2 * dim, lr, device)

    def initialise(self, generator: torch.Generator) -> None:
        """Fill all four parts with Xavier-uniform numbers."""
        for table in self.tables.values():
            bound = math.sqrt(6.0 / (len(table) + self.dim))
            drawn = torch.rand(table.shape, generator=generator, device=table.device)
            table.copy_((2 * drawn - 1) * bound)

    def warm_start(self, model: EmbeddingModel) -> None:
        """Start as the softmax of ``(e + r) . e'``: tanh is close to the identity near zero."""
        entity = normalize(model.entity, dim=1)
        self.tables["entity"].copy_(torch.cat([entity, entity], dim=1))
        relation = torch.cat([torch.zeros_like(model.relation), model.relation], dim=1)
        self.tables["relation"].copy_(relation)

    def _out(self) -> Tensor:
        return self.tables["entity"][:, self.dim :]

    def _hidden(self, pairs: Pairs, e: Tensor, r: Tensor) -> Tensor:
        sign = torch.where(pairs.replaces_head, -1.0, 1.0).unsqueeze(1)
        return torch.tanh(e + sign * r[:, : self.dim]) + sign * r[:, self.dim :]

    def draw(self, pairs: Pairs, uniform: Tensor) -> Tensor:
        """Draw entities from the whole distribution. Shapes: (b, k) -> (b, k)."""
        e, r = self._rows(pairs)
        hidden, out = self._hidden(pairs, e, r), self._out()
        drawn = torch.empty(uniform.shape, dtype=torch.int64, device=uniform.device)
        for part in self._chunks(len(hidden)):
            cumulative = (hidden[part] @ out.T).softmax(1).cumsum(1)
            place = torch.searchsorted(cumulative, uniform[part] * cumulative[:, -1:], right=True)
            drawn[part] = place.clamp_max_(len(out) - 1)
        return drawn

    def reinforce(self, pairs: Pairs, picked: Tensor, advantage: Tensor) -> None:
        """Make picks with an advantage more likely. Shapes: (b, k), (b, k)."""
        e, r = (rows.requires_grad_() for rows in self._rows(pairs))
        with torch.enable_grad():
            hidden = self._hidden(pairs, e, r)
        out = self._out()
        to_hidden = torch.zeros_like(hidden)
        to_entity = torch.zeros_like(self.tables["entity"])
        for part in self._chunks(len(hidden)):
            inputs = hidden[part].detach()
            weights = (inputs @ out.T).softmax(1).mul_(-advantage[part].sum(1, keepdim=True))
            weights.scatter_add_(1, picked[part], advantage[part])  # sum of A (onehot - p)
            to_hidden[part] = weights @ out
            to_entity[:, self.dim :].addmm_(weights.T, inputs, alpha=-1)
        to_e, to_r = torch.autograd.grad(hidden, [e, r], -to_hidden)
        to_entity[:, : self.dim].index_add_(0, pairs.anchor, to_e)
        gradients: Gradients = {
            "entity": [RowGradients(None, to_entity)],
            "relation": [RowGradients(pairs.relation, to_r)],
        }
        self.adam.step(gradients)

    def _rows(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Return copies of what the fixed pairs have in the tables."""
        entity = self.tables["entity"][pairs.anchor, : self.dim]
        return entity, self.tables["relation"][pairs.relation]

    def _chunks(self, count: int) -> list[slice]:
        return [slice(start, start + self.chunk) for start in range(0, count, self.chunk)]


# The samplers ----------------------------------------------------------------------------------


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
        scores = self.generator.logits(pairs, candidates)
        uniform = torch.rand((len(batch), self.negatives), generator=generator, device=self.device)
        picked = draw_at(uniform, scores, candidates >= 0, 1.0, "none")
        self._drawn = pairs, candidates, scores, picked
        return answered(pairs.replaces_head, targets, candidates.gather(1, picked))

    def learn(self, batch: Batch, candidates: Candidates, scores: Tensor, queries: Queries) -> None:
        """Reward the picks with the scores the model gave them."""
        pairs, offered, logits, picked = self._drawn
        advantage = self.generator.advantage(scores[:, 1:], candidates.weights > 0)
        # A row without a proper candidate has no advantage either.
        chances = logits.softmax(1).nan_to_num(0.0)
        self.generator.reinforce(pairs, offered, chances, picked, advantage)


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
        advantage = self.generator.advantage(scores[:, 1:], candidates.weights > 0)
        self.generator.reinforce(self._pairs, candidates.negatives.clamp_min(0), advantage)


def igan_chunk(sizes: tuple[int, int], options: SamplerOptions) -> int:
    """Return how many pairs IGAN handles at once within its memory; refuse where none fit."""
    entities = sizes[0]
    tables = 4 * 4 * 2 * options.generator_dim * sum(sizes)  # with gradient and Adam's two moments
    limit = options.generator_memory * 2**20
    row = 3 * 4 * entities  # logits, probabilities and their running sum
    if tables + row > limit:
        raise UserError(
            f"IGAN's generator over {entities:,} entities needs {(tables + row) / 2**20:,.0f} MB; "
            f"generator_memory allows {options.generator_memory:,}. Raise it, make generator_dim "
            "smaller, or take another sampler: nscaching needs no generator."
        )
    return max(1, int((limit - tables) // row))
