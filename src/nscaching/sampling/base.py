"""The contract of a negative sampler.

In every step the loop asks a sampler for negatives (``sample``), lets it renew what it keeps
(``update``), takes the gradient step, and tells it how the negatives fared (``learn``). A sampler
sees the batch with its triple ids and a scorer of the current model; it may keep state, trainable
or not, which goes into checkpoints through ``state`` and ``load_state``.
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
from nscaching.kernels.availability import HAVE_NUMBA, HAVE_TRITON
from nscaching.models import EmbeddingModel, Side
from nscaching.sampling.hashing import new_seed
from nscaching.sampling.known import KnownAnswers
from nscaching.sampling.options import SamplerOptions

#: Times a drawn known positive is drawn again before the negative is masked.
REDRAWS = 16
DEVICE_REDRAWS = 4


class Scorer(Protocol):
    """What a sampler may ask of the current model; no gradient flows through it."""

    def score_candidates(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor
    ) -> Tensor:
        """Score k candidates a query. Shapes: (b,), (b,), (b, k) -> (b, k)."""

    def score_pool(self, side: Side, anchor: Tensor, relation: Tensor, pool: Tensor) -> Tensor:
        """Score the same entities for each query. Shapes: (b,), (b,), (p,) -> (b, p)."""

    def score_all(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Score all entities. Shapes: (b,), (b,) -> (b, n)."""


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

    def rows(self, side: Side) -> Tensor:
        """Return the rows that hold replacements of ``side``."""
        return self.head_rows if side is Side.HEAD else self.tail_rows

    def anchor(self, side: Side) -> Tensor:
        """Return the entity that stays when ``side`` is replaced."""
        return self.tails if side is Side.HEAD else self.heads

    @classmethod
    def of(cls, columns: Tensor, index: Tensor) -> Batch:
        """Gather the batch of some triples from :func:`triple_columns`."""
        return cls(index, *columns.index_select(1, index).long().unbind(0))


@dataclass(frozen=True)
class Negatives:
    """k negatives a positive, all of shape (b, k)."""

    entities: Tensor  #: int64, what replaces the head or the tail
    replaces_head: Tensor  #: bool
    weight: Tensor  #: float; adds up to 1 over k, 0 where there is no negative
    importance: Tensor | None = None  #: (b,): factor of each positive's gradients


class Sampler(ABC):
    """Base of all samplers: the side to replace, the known positives, the order of an epoch."""

    name: ClassVar[str]
    #: Whether each step scores many candidates, so that a compact table pays for itself.
    scores_candidates: ClassVar[bool] = False
    #: Whether it is trained itself, and takes a warm start from a TransE.
    has_generator: ClassVar[bool] = False
    #: Options that only some samplers read, this one among them.
    own_options: ClassVar[frozenset[str]] = frozenset()
    #: Negatives a positive where none are asked for.
    usual_negatives: ClassVar[int] = 1

    def __init__(
        self, graph: KnowledgeGraph, options: SamplerOptions, device: torch.device
    ) -> None:
        self.options = options
        self.negatives = options.negatives or self.usual_negatives
        self.device = device
        self.num_entities = graph.num_entities
        self.num_triples = len(graph.train)
        self.head_probability = self._head_probability(graph).to(device)
        pairs = {Side.HEAD: graph.rows.head, Side.TAIL: graph.rows.tail}
        self.known: dict[Side, KnownAnswers] | None = None
        if options.known_positives == "exclude":
            self.known = {
                side: KnownAnswers(pair, graph.num_entities, device) for side, pair in pairs.items()
            }

    def _head_probability(self, graph: KnowledgeGraph) -> Tensor:
        """Return, for each relation, the probability of replacing the head: Bernoulli's."""
        return torch.from_numpy(graph.statistics.head_probability)

    def prepare(self, scorer: Scorer, generator: torch.Generator) -> None:  # noqa: B027
        """Fill what is kept, once, before the first step of a fresh run."""

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> Tensor:
        """Return the training triples of this epoch, in order; epochs count from 0."""
        return torch.randperm(self.num_triples, generator=generator, device=self.device)

    @abstractmethod
    def sample(self, batch: Batch, scorer: Scorer, generator: torch.Generator) -> Negatives:
        """Return negatives for the batch."""

    def update(self, batch: Batch, scorer: Scorer, generator: torch.Generator) -> None:
        """Renew what is kept for the batch."""
        for job in self.update_jobs(batch, scorer, generator):
            job()

    def update_jobs(
        self, batch: Batch, scorer: Scorer, generator: torch.Generator
    ) -> list[Callable[[], None]]:
        """Return the renewal as pieces that do not depend on each other: a GPU overlaps them.

        All that is random is drawn here, not in the pieces.
        """
        return []

    def reads_only_its_rows(self, scorer: Scorer) -> bool:
        """Tell whether a step reads no entity rows but those of its positives and negatives.

        They are known once the negatives are drawn, so drawing reads none.
        """
        return False

    def phase(self) -> bool:
        """Return a value that changes when a step of this epoch does other things than before."""
        return True

    def learn(self, batch: Batch, negatives: Negatives, scores: Tensor) -> None:  # noqa: B027
        """Learn from how the model scored the negatives. Shape of scores: (b, k)."""

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

    def draw_sides(self, batch: Batch, count: int, generator: torch.Generator) -> Tensor:
        """Draw for each negative whether it replaces the head. Shape: (b, count), bool."""
        shape = (len(batch.relations), count)
        return self.choose_sides(batch, torch.rand(shape, generator=generator, device=self.device))

    def choose_sides(self, batch: Batch, uniform: Tensor) -> Tensor:
        """Do what :meth:`draw_sides` does with given uniform numbers. Shapes: (b, k) -> (b, k)."""
        return uniform < self.head_probability[batch.relations].unsqueeze(1)

    def uniform_negatives(
        self, batch: Batch, replaces_head: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw uniform entities, again where they are known positives.

        Returns the entities and whether each is a proper negative. Shapes: (b, k).
        """
        draw_uniform = self._compiled_draw()
        if draw_uniform is not None:
            known = None if self.known is None else (self.known[Side.HEAD], self.known[Side.TAIL])
            rows = (batch.head_rows, batch.tail_rows)
            seed = new_seed(generator)
            return draw_uniform(seed, replaces_head, rows, known, self.num_entities, 1 + REDRAWS)
        shape = replaces_head.shape
        entities = self.uniform_entities(shape, generator)
        bad = self.is_known(batch, replaces_head, entities)
        on_cpu = self.device.type == "cpu"
        for _ in range(REDRAWS if on_cpu else DEVICE_REDRAWS):
            if on_cpu and not bad.any():  # a device would have to wait for the answer
                break
            entities = torch.where(bad, self.uniform_entities(shape, generator), entities)
            bad = self.is_known(batch, replaces_head, entities)
        return entities, ~bad

    def _compiled_draw(self) -> Callable[..., tuple[Tensor, Tensor]] | None:
        """Return what draws uniform negatives in one pass on this device, if anything does."""
        if self.device.type == "cuda" and HAVE_TRITON:
            from nscaching.sampling.uniform_gpu import draw_uniform as on_gpu

            return on_gpu
        if self.device.type == "cpu" and HAVE_NUMBA:
            from nscaching.sampling.uniform_cpu import draw_uniform as on_cpu

            return on_cpu
        return None

    def uniform_entities(self, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """Draw entity ids uniformly, with replacement."""
        return torch.randint(self.num_entities, shape, generator=generator, device=self.device)

    def is_known(self, batch: Batch, replaces_head: Tensor, entities: Tensor) -> Tensor:
        """Tell which replacements make a training triple. Shapes: (b, k) -> (b, k)."""
        if self.known is None:
            return torch.zeros_like(replaces_head)
        head, tail = (
            self.known[side].contains(batch.rows(side), entities) for side in (Side.HEAD, Side.TAIL)
        )
        return torch.where(replaces_head, head, tail)


def even_weights(valid: Tensor) -> Tensor:
    """Share a weight of one among the valid negatives of each positive. Shape: (b, k)."""
    weight = valid.float()
    return weight / weight.sum(1, keepdim=True).clamp_min(1)
