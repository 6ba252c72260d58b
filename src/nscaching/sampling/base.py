"""The contract of a negative sampler.

In every step the loop asks a sampler for candidates (``sample``), lets it update what it keeps
(``update_jobs``), takes the gradient step, and tells it how the candidates scored (``learn``). A
sampler sees the batch with its triple ids and a model; it may keep state, trainable or not, which
goes into checkpoints through ``state`` and ``load_state``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph
from nscaching.kernels.hashing import new_seed
from nscaching.models import EmbeddingModel, Side
from nscaching.sampling.known import KnownPositives, draw_uniform, exclude_known
from nscaching.sampling.options import SamplerOptions
from nscaching.sampling.pool import Pool


class Scorer(Protocol):
    """What a sampler may ask of the current model; no gradient flows through it."""

    def score_candidates(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor
    ) -> Tensor:
        """Score k candidates per question, -1 as -inf. Shapes: (b,), (b,), (b, k) -> (b, k)."""


class Queries(Protocol):
    """The questions of a batch, ready to be scored; no gradient flows through it."""

    def score(self, side: Side, ids: Tensor, places: Tensor | None = None) -> Tensor:
        """Score candidates of the questions for one side, -1 as -inf. Shapes: (b, k) -> (b, k).

        ``places`` are those of the questions in the batch; all by default.
        """

    def score_pool(self, side: Side, pool: Tensor, places: Tensor | None = None) -> Tensor:
        """Score one pool for the questions for one side. Shapes: (p,) -> (b, p)."""


def triple_columns(graph: KnowledgeGraph, device: torch.device) -> Tensor:
    """Return what a batch is made of, for all training triples. Shape: (5, n), int32."""
    rows = graph.rows
    columns = [*graph.train.T, rows.head.of_triple, rows.tail.of_triple]
    return torch.from_numpy(np.stack(columns).astype(np.int32, copy=False)).to(device)


@dataclass(frozen=True)
class Batch:
    """Positive triples of one step, each int64 of shape (b,)."""

    index: Tensor  #: which training triples they are
    heads: Tensor
    relations: Tensor
    tails: Tensor
    head_rows: Tensor  #: row of (r, t), where replacements of the head are kept
    tail_rows: Tensor  #: row of (h, r), where replacements of the tail are kept

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, side: Side) -> Tensor:
        """Return the rows that hold replacements of ``side``."""
        return self.head_rows if side is Side.HEAD else self.tail_rows

    def anchor(self, side: Side) -> Tensor:
        """Return the entity that stays when ``side`` is replaced."""
        return self.tails if side is Side.HEAD else self.heads

    def at(self, part: slice) -> Batch:
        """Return some of the triples."""
        columns = (self.index, self.heads, self.relations, self.tails)
        return Batch(*(each[part] for each in (*columns, self.head_rows, self.tail_rows)))

    @classmethod
    def of(cls, columns: Tensor, index: Tensor) -> Batch:
        """Gather the batch of some triples from :func:`triple_columns`."""
        return cls(index, *columns.index_select(1, index).long().unbind(0))


@dataclass(frozen=True)
class Candidates:
    """The questions of a step, and the entities that each is answered with.

    One question per triple: its head or its tail is replaced; or both questions of every triple,
    those for the heads first.
    """

    replaces_head: Tensor  #: (q,) bool: whether a question is for the head
    ids: Tensor  #: (q, 1 + k) int64: the true entity, then the candidates; -1 is padding
    weights: Tensor  #: (q, k) float; 0 where there is no candidate
    importance: Tensor | None = None  #: (q,): factor of the gradients of each question
    pool: Tensor | None = None  #: (p,): candidates of every question besides its own
    pool_weights: Tensor | None = None  #: (q, p): their weights
    all_entities: bool = False  #: every entity is a candidate; then k is 0

    @property
    def targets(self) -> Tensor:
        """The true entities. Shape: (q,)."""
        return self.ids[:, 0]

    @property
    def all_weights(self) -> Tensor:
        """The weights of a question's own candidates, then of the pool. Shape: (q, k + p)."""
        if self.pool_weights is None:
            return self.weights
        return torch.cat([self.weights, self.pool_weights], dim=1)

    @property
    def negatives(self) -> Tensor:
        """The candidates without the true entity. Shape: (q, k)."""
        return self.ids[:, 1:]


class Sampler(ABC):
    """Base of all samplers: the side to replace, the known positives, the order of an epoch."""

    name: ClassVar[str]
    #: Whether each step scores many candidates for an update, so that an int8 copy pays.
    scores_candidates: ClassVar[bool] = False
    #: Whether a step reads rows of the model that are not rows of its batch or its candidates.
    reads_other_rows: bool = True
    #: Whether it is trained itself, and takes a warm start from a TransE.
    has_generator: ClassVar[bool] = False
    #: Options that only some samplers read, this one among them.
    own_options: ClassVar[frozenset[str]] = frozenset()
    #: Negatives per positive where none are asked for.
    usual_negatives: ClassVar[int] = 1
    #: Whether it can ask both questions of every triple, as the softmax loss does.
    both_sides_possible: ClassVar[bool] = False
    #: Whether it can do nothing else.
    needs_both_sides: ClassVar[bool] = False

    def __init__(
        self,
        graph: KnowledgeGraph,
        options: SamplerOptions,
        device: torch.device,
        *,
        both_sides: bool = False,
    ) -> None:
        self.options = options
        self.both_sides = both_sides
        self.negatives = options.negatives or self.usual_negatives
        self.device = device
        self.num_entities = graph.num_entities
        self.num_triples = len(graph.train)
        self.head_probability = self._head_probability(graph).to(device)
        self.known: dict[Side, KnownPositives] | None = None
        if options.known_positives == "exclude":
            self.known = {
                side: KnownPositives(graph.rows[side], graph.num_entities, device) for side in Side
            }

    def _head_probability(self, graph: KnowledgeGraph) -> Tensor:
        """Return, for each relation, the probability of replacing the head: Bernoulli's."""
        return torch.from_numpy(graph.statistics.head_probability)

    def prepare(self, scorer: Scorer, generator: torch.Generator) -> None:  # noqa: B027
        """Fill what is kept, once, before the first step of a fresh run."""

    def note_epoch(self, epoch: int) -> None:  # noqa: B027
        """Hear which epoch begins; epochs count from 0."""

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> Tensor:
        """Return the training triples of this epoch, in order; epochs count from 0."""
        return torch.randperm(self.num_triples, generator=generator, device=self.device)

    @abstractmethod
    def sample(self, batch: Batch, generator: torch.Generator) -> Candidates:
        """Return the questions of the batch with their candidates."""

    def weigh(self, candidates: Candidates, scores: Tensor) -> Tensor:
        """Return the weights of scored candidates. Shapes: (q, 1 + k + p) -> (q, k + p)."""
        return candidates.all_weights

    def update_jobs(
        self, batch: Batch, queries: Queries, generator: torch.Generator
    ) -> list[Callable[[], None]]:
        """Return the updates of what is kept for the batch; they do not depend on each other."""
        return []

    def phase(self) -> bool:
        """Return what decides, besides shapes, which operations a step is made of."""
        return True

    def learn(  # noqa: B027
        self, batch: Batch, candidates: Candidates, scores: Tensor, queries: Queries
    ) -> None:
        """Hear how the model scored the candidates. Shape of scores: (q, 1 + k)."""

    def warm_start(self, model: EmbeddingModel) -> None:  # noqa: B027
        """Take over what a TransE has learned, before :meth:`prepare`; for generators."""

    @property
    def extra_parameters(self) -> int:
        """Count what is trained besides the model."""
        return 0

    def state(self) -> dict[str, Tensor]:
        """Return everything a checkpoint must hold."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:  # noqa: B027
        """Take back what :meth:`state` returned."""

    # Shared by the samplers ----------------------------------------------------------------------

    def questions(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return for each question its side, its true entity and its row.

        Both sides of every triple, heads first, or one side drawn per triple. Shapes: (q,).
        """
        if self.both_sides:
            replaces_head = torch.zeros(2 * len(batch), dtype=torch.bool, device=self.device)
            replaces_head[: len(batch)] = True
            rows = torch.cat([batch.head_rows, batch.tail_rows])
            return replaces_head, torch.cat([batch.heads, batch.tails]), rows
        uniform = torch.rand(len(batch), generator=generator, device=self.device)
        replaces_head = uniform < self.head_probability[batch.relations]
        targets = torch.where(replaces_head, batch.heads, batch.tails)
        return replaces_head, targets, torch.where(replaces_head, batch.head_rows, batch.tail_rows)

    def uniform_candidates(
        self, replaces_head: Tensor, rows: Tensor, count: int, generator: torch.Generator
    ) -> Tensor:
        """Draw uniform entities, -1 where only known positives came up. Shapes: (q,) -> (q, k).

        In a softmax, which asks both sides, they stand for all entities: known positives too.
        """
        known = None
        if self.known is not None and not self.both_sides:
            known = self.known[Side.HEAD], self.known[Side.TAIL]
        seed = new_seed(generator)
        return draw_uniform(seed, replaces_head, rows, known, self.num_entities, count)

    def draw_pool(self, generator: torch.Generator) -> Pool:
        """Draw uniform entities that all questions of a step share, in ascending order.

        Each stands for its share of all entities; a repeat stands for none.
        """
        return Pool.drawn(new_seed(generator), self.options.pool, self.num_entities)

    def shared(
        self, replaces_head: Tensor, targets: Tensor, rows: Tensor, generator: torch.Generator
    ) -> Candidates:
        """Return questions with one pool of uniform entities for all of them.

        For both sides each entity stands for its share of all entities; else they share a weight
        of one, and known positives have none where they are excluded. Shapes: (q,) each.
        """
        pool, true = self.draw_pool(generator), targets.unsqueeze(1)
        weights = pool.weights_without(true)
        if not self.both_sides:
            ids = pool.ids.expand(len(rows), -1)
            weights = weights * (self.without_known(replaces_head, rows, ids) >= 0)
            weights = weights / weights.sum(1, keepdim=True).clamp_min(1e-30)
        none = torch.empty(len(targets), 0, device=self.device)
        return Candidates(replaces_head, true, none, pool=pool.ids, pool_weights=weights)

    def without_known(self, replaces_head: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """Return ids with -1 in place of known positives. Shapes: (q,), (q,), (q, k)."""
        if self.known is None:
            return ids
        head, tail = (exclude_known(self.known[side], rows, ids) for side in Side)
        return torch.where(replaces_head.unsqueeze(1), head, tail)


def answered(
    replaces_head: Tensor, targets: Tensor, ids: Tensor, weights: Tensor | None = None
) -> Candidates:
    """Put the true entity before candidates; without weights all share a weight of one."""
    if weights is None:
        weights = even_weights(ids >= 0)
    return Candidates(replaces_head, torch.cat([targets.unsqueeze(1), ids], dim=1), weights)


def even_weights(valid: Tensor) -> Tensor:
    """Share a weight of one among the valid negatives of each positive. Shape: (b, k)."""
    weight = valid if valid.is_floating_point() else valid.float()
    return weight if weight.shape[1] == 1 else weight / weight.sum(1, keepdim=True).clamp_min(1)
