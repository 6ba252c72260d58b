"""Filtered ranks of the true entities among all entities, in chunks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import Integers, Longs
from nscaching.graph.pairs import pair_keys, pair_rows, sorted_distinct
from nscaching.kernels.registry import kernel
from nscaching.kernels.threads import refuse_lost_threads
from nscaching.models import EmbeddingModel, Side


class Asked(NamedTuple):
    """The distinct questions of some triples: a question that several of them ask is asked once."""

    anchors: Longs  #: (u,)
    relations: Longs  #: (u,)
    row: Longs  #: (b,): which question each triple asks
    targets: Longs  #: (b,): its true entity

    @classmethod
    def of(cls, triples: Integers, side: Side) -> Asked:
        """Return the questions for one side of triples (b, 3) that stand in their order."""
        anchors, relations, targets = (
            triples[:, column].astype(np.int64) for column in (side.other.column, 1, side.column)
        )
        first = np.ones(len(triples), dtype=bool)
        first[1:] = (anchors[1:] != anchors[:-1]) | (relations[1:] != relations[:-1])
        return cls(anchors[first], relations[first], np.cumsum(first) - 1, targets)


class Questions(NamedTuple):
    """The distinct questions of some triples as tensors, and what is known to answer them."""

    anchors: Tensor  #: (u,)
    relations: Tensor  #: (u,)
    row: Tensor  #: (b,): which question each triple asks, ascending
    targets: Tensor  #: (b,): its true entity
    question: Tensor  #: (m,), int32: the question of each known answer, ascending
    entity: Tensor  #: (m,), int32: the known answer

    def on(self, device: torch.device) -> Questions:
        """Return the questions on a device."""
        return Questions(*(each.to(device) for each in self))

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return sum(each.nbytes for each in self)


#: Counts for each triple what :func:`counts_of` returns, wherever the entities are: see
#: :func:`count_better`.
Count = Callable[[EmbeddingModel, Side, Questions], Tensor]


class KnownAnswers:
    """The answers to the questions of one side in training, and in other triples."""

    def __init__(self, graph: KnowledgeGraph, others: Integers, side: Side) -> None:
        sizes = self._num_entities, _ = graph.num_entities, graph.num_relations
        self._pairs = graph.rows[side], pair_rows(others, side.word, *sizes)

    def of(self, anchors: Integers, relations: Integers) -> tuple[Longs, Longs]:
        """Return the answers of questions as (question, entity) lists. Shapes: (b,), (b,)."""
        asked = np.asarray(anchors), np.asarray(relations)
        keys = [pair_keys(*pairs.completions(*asked), self._num_entities) for pairs in self._pairs]
        question, entity = np.divmod(sorted_distinct(np.concatenate(keys)), self._num_entities)
        return question, entity


#: Numbers of a triple that :func:`counts_of` returns.
COUNTS = 5
#: Which share of the entities with the same score stands above the true one.
TIES = {"mean": 0.5, "optimistic": 0.0, "pessimistic": 1.0}
#: The scores of a chunk take this part of the memory that bounds it, for what is alive besides.
LIVE_TABLES = 3
#: Scores that the plain form compares at once, and the bytes that it takes for each: the count of
#: what is true makes long integers of it.
COUNTED, COUNTED_BYTES = 1 << 24, 16
DEFAULT_MEMORY_MB = 512
#: Bytes of questions that are kept for the next ranking of the same triples.
KEPT_BYTES = 1 << 28


@dataclass(frozen=True)
class Ranks:
    """Ranks of one side, one per triple, and how many entities each was ranked among."""

    rank: np.ndarray  #: float64 (n,)
    among: np.ndarray  #: int64 (n,) entities left after filtering, the true one included
    #: float64 (n,) the rank without the anchor itself, where the relation is irreflexive in
    #: training; a true answer that is the anchor itself ranks last there.
    without_loops: np.ndarray


def known_positives(graph: KnowledgeGraph, ranked: np.ndarray) -> dict[Side, KnownAnswers]:
    """Return what answers the queries of each side, in the graph and in what is ranked."""
    own = any(ranked is split for split in (graph.train, graph.valid, graph.test))
    others = np.concatenate([graph.valid, graph.test, *([] if own else [ranked])])
    return {side: KnownAnswers(graph, others, side) for side in Side}


class Prepared:
    """What ranking takes from a graph and the triples alone: kept, it serves many models."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        triples: np.ndarray,
        memory_mb: int = DEFAULT_MEMORY_MB,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self.graph, self.triples, self._room = graph, triples, kept_bytes
        self._chunk = chunk_rows(graph.num_entities, memory_mb)
        self._known = known_positives(graph, triples)
        self._kept: dict[tuple[Side, int], Questions] = {}
        #: Equal questions come together, and those of one relation, which share a view of entities.
        self.order = {
            side: np.lexsort((triples[:, side.other.column], triples[:, 1])) for side in Side
        }
        sides, count = len(Side), len(triples)
        # Of each side, in its order, once the questions have been made; shapes: (n,) each.
        self.among = np.empty((sides, count), dtype=np.int64)  #: entities left after filtering
        #: Whether the anchor itself is taken out for the rank without loops, and is the true one.
        self.left_out, self.true_loop = np.empty((2, sides, count), dtype=bool)

    def chunks(self, side: Side, device: torch.device) -> Iterator[Questions]:
        """Yield the questions for one side, in their order, on a device."""
        for start in range(0, len(self.triples), self._chunk):
            found = self._kept.get((side, start))
            if found is None:
                found = self._questions(side, start).on(device)
                if found.nbytes <= self._room:
                    self._kept[side, start] = found
                    self._room -= found.nbytes
            yield found.on(device)

    def _questions(self, side: Side, start: int) -> Questions:
        """Return the questions of a chunk, and note what depends on them alone."""
        part = slice(start, start + self._chunk)
        asked = Asked.of(self.triples[self.order[side][part]], side)
        question, entity = self._known[side].of(asked.anchors, asked.relations)
        answers = np.bincount(question, minlength=len(asked.anchors))
        self.among[side, part] = self.graph.num_entities - answers[asked.row] + 1
        left_out = self.graph.irreflexive[asked.relations]
        is_loop = asked.targets == asked.anchors[asked.row]
        self.true_loop[side, part] = left_out[asked.row] & is_loop
        left_out[question[entity == asked.anchors[question]]] = False  # filtered already
        self.left_out[side, part] = left_out[asked.row]
        known = question.astype(np.int32), entity.astype(np.int32)
        return Questions(*map(torch.from_numpy, (*asked, *known)))

    def ranks(self, side: Side, counts: Longs, ties: str) -> Ranks:
        """Return the ranks of one side from :func:`counts_of` in its order. Shape: (5, n)."""
        better, equal, unknown, loop_better, loop_equal = counts
        among, last = self.among[side], unknown > 0
        found = better + 1 + TIES[ties] * equal
        loop = loop_better + TIES[ties] * loop_equal
        loop_free = np.where(self.true_loop[side] | last, among, found - self.left_out[side] * loop)
        columns = np.where(last, among, found), among, loop_free
        order, ranks = self.order[side], []
        for column in columns:
            ranks.append(np.empty_like(column))
            ranks[-1][order] = column
        return Ranks(*ranks)


def rank_triples(
    model: EmbeddingModel,
    graph: KnowledgeGraph,
    triples: np.ndarray,
    *,
    ties: str = "mean",
    memory_mb: int = DEFAULT_MEMORY_MB,
    progress: Callable[[int], None] | None = None,
    count: Count | None = None,
    prepared: Prepared | None = None,
) -> dict[Side, Ranks]:
    """Rank the head and the tail of each triple, filtered by all splits of the graph.

    ``memory_mb`` bounds the tables of scores; ``progress`` is called with the number of queries
    done since its last call, or, on a GPU, handed to it. A score that is not a number ranks last.
    ``count`` counts better entities where they are not all in the model; ``prepared`` is kept from
    a ranking of the same triples, and bounds the memory in place of ``memory_mb``.
    """
    if ties not in TIES:
        raise UserError(f"ties must be one of {', '.join(TIES)}, not '{ties}'.")
    refuse_lost_threads()
    if prepared is None:
        prepared = Prepared(graph, triples, memory_mb, kept_bytes=0)
    counts = [torch.empty(COUNTS, 0, dtype=torch.int64, device=model.device)]
    for side in Side:
        for questions in prepared.chunks(side, model.device):
            counts.append((count or count_better)(model, side, questions))
            if progress is not None:
                progress(len(questions.row))
    found = torch.cat(counts, dim=1).cpu().numpy()  # a GPU is waited for once
    halves = np.split(found, len(Side), axis=1)
    return {side: prepared.ranks(side, halves[side], ties) for side in Side}


def chunk_rows(num_entities: int, memory_mb: int) -> int:
    """Return how many queries are scored at once under a memory bound."""
    return max(1, int(memory_mb * 2**20 / (4 * LIVE_TABLES * max(1, num_entities))))


@torch.no_grad()
def count_better(model: EmbeddingModel, side: Side, questions: Questions) -> Tensor:
    """Count for each triple, without the entities that are known to answer. Shape: (5, b)."""
    anchors, relations, row, targets, question, entity = questions
    scores = model.score_all(side, anchors, relations)
    true, loop = scores[row, targets], scores[row, anchors[row]]
    better, equal = count_above(scores, row, true, question.long(), entity.long())
    return counts_of(better, equal, true, loop)


def counts_of(better: Tensor, equal: Tensor, true: Tensor, loop: Tensor) -> Tensor:
    """Return what stands above the true entity of each triple. Shapes: (b,) each -> (5, b).

    How many entities score above it and the same; and, as 0 or 1, whether its own score is no
    number, and whether the anchor itself scores above it and the same.
    """
    told = torch.stack([true.isnan(), loop > true, loop == true])
    return torch.cat([torch.stack([better, equal]), told.long()])


def counted_rows(rows: int, entities: int) -> int:
    """Return how many rows of scores the plain form compares at once.

    Never more than half of a chunk, so that with its scores they stay within the bound.
    """
    return max(1, min(COUNTED // max(1, entities), rows // 2))


@kernel(cpu="all_pairs_cpu", gpu="all_pairs_gpu")
def count_above(
    scores: Tensor, row: Tensor, true: Tensor, question: Tensor, entity: Tensor
) -> tuple[Tensor, Tensor]:
    """Count the entities that score above the true one, and the same as it.

    Those that are listed with their question do not count; the scores may be changed. A triple has
    the scores of its row; rows ascend, and none is left out.
    Shapes: (u, n), (b,), (b,), (m,), (m,) -> (b,) twice.
    """
    scores[question, entity] = torch.nan  # neither above nor equal to anything
    size = counted_rows(len(row), scores.shape[1])
    better, equal = torch.empty(2, len(row), dtype=torch.int64, device=scores.device)
    for start in range(0, len(row), size):
        part = slice(start, start + size)
        own, limit = scores[row[part]], true[part].unsqueeze(1)
        better[part] = (own > limit).count_nonzero(1)
        equal[part] = (own == limit).count_nonzero(1)
    return better, equal
