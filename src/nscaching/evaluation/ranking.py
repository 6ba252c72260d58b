"""Filtered ranks of the true entities among all entities, in chunks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import Bools, Integers, Longs
from nscaching.graph.pairs import pair_keys, pair_rows, sorted_distinct
from nscaching.kernels.registry import kernel
from nscaching.kernels.threads import refuse_lost_threads
from nscaching.models import EmbeddingModel, Side


class Counts(NamedTuple):
    """What stands above the true entity of each triple; shape (b,) each."""

    better: Longs  #: entities that score above the true one
    equal: Longs  #: entities that score the same
    unknown: Bools  #: whether the score of the true one is no number
    loop_better: Bools  #: whether the anchor itself scores above the true one
    loop_equal: Bools  #: whether the anchor itself scores the same

    @classmethod
    def of(cls, better: Longs, equal: Longs, true: Tensor, loop: Tensor) -> Counts:
        """Return counts with the scores of the true entities and of the anchors themselves."""
        told = (each.cpu().numpy() for each in (true.isnan(), loop > true, loop == true))
        return cls(better, equal, *told)


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

    def on(self, device: torch.device) -> list[Tensor]:
        """Return the four as tensors."""
        return [torch.from_numpy(each).to(device) for each in self]


#: Counts the entities that score above the true one, wherever they are: see :func:`count_better`.
Count = Callable[[EmbeddingModel, Side, Asked, Longs, Longs], Counts]


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


#: Which share of the entities with the same score stands above the true one.
TIES = {"mean": 0.5, "optimistic": 0.0, "pessimistic": 1.0}
#: The scores of a chunk take this part of the memory that bounds it, for what is alive besides.
LIVE_TABLES = 3
#: Scores that the plain form compares at once, and the bytes that it takes for each: the count of
#: what is true makes long integers of it.
COUNTED, COUNTED_BYTES = 1 << 24, 16
DEFAULT_MEMORY_MB = 512


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


def rank_triples(
    model: EmbeddingModel,
    graph: KnowledgeGraph,
    triples: np.ndarray,
    *,
    ties: str = "mean",
    memory_mb: int = DEFAULT_MEMORY_MB,
    progress: Callable[[int], None] | None = None,
    count: Count | None = None,
) -> dict[Side, Ranks]:
    """Rank the head and the tail of each triple, filtered by all splits of the graph.

    ``memory_mb`` bounds the tables of scores; ``progress`` is called with the number of queries
    done since its last call. A score that is not a number ranks last. ``count`` counts better
    entities where they are not all in the model.
    """
    if ties not in TIES:
        raise UserError(f"ties must be one of {', '.join(TIES)}, not '{ties}'.")
    refuse_lost_threads()
    chunk = chunk_rows(graph.num_entities, memory_mb)
    ranks = {}
    known = known_positives(graph, triples)
    for side in Side:
        # Equal questions come together, and those of one relation, which share a view of entities.
        order = np.lexsort((triples[:, side.other.column], triples[:, 1]))
        rank, without_loops = np.empty((2, len(triples)))
        among = np.empty(len(triples), dtype=np.int64)
        for start in range(0, len(triples), chunk):
            part = order[start : start + chunk]
            asked = Asked.of(triples[part], side)
            question, entity = known[side].of(asked.anchors, asked.relations)
            counts = (count or count_better)(model, side, asked, question, entity)
            found = counts.better + 1 + TIES[ties] * counts.equal
            answers = np.bincount(question, minlength=len(asked.anchors))
            among[part] = graph.num_entities - answers[asked.row] + 1
            rank[part] = np.where(counts.unknown, among[part], found)
            left_out = graph.irreflexive[asked.relations]
            true_loop = left_out[asked.row] & (asked.targets == asked.anchors[asked.row])
            left_out[question[entity == asked.anchors[question]]] = False  # filtered already
            loop = counts.loop_better + TIES[ties] * counts.loop_equal
            found = found - left_out[asked.row] * loop
            without_loops[part] = np.where(true_loop | counts.unknown, among[part], found)
            if progress is not None:
                progress(len(part))
        ranks[side] = Ranks(rank, among, without_loops)
    return ranks


def chunk_rows(num_entities: int, memory_mb: int) -> int:
    """Return how many queries are scored at once under a memory bound."""
    return max(1, int(memory_mb * 2**20 / (4 * LIVE_TABLES * max(1, num_entities))))


@torch.no_grad()
def count_better(
    model: EmbeddingModel, side: Side, asked: Asked, question: Longs, entity: Longs
) -> Counts:
    """Count for each triple, without the entities that are listed with their question."""
    anchors, relations, row, targets = asked.on(model.device)
    scores = model.score_all(side, anchors, relations)
    true, loop = scores[row, targets], scores[row, anchors[row]]
    return Counts.of(*count_scores(scores, row, true, question, entity), true, loop)


def count_scores(
    scores: Tensor, row: Tensor, true: Tensor, question: Longs, entity: Longs
) -> tuple[Longs, Longs]:
    """Count the entities that score above the true one, and the same as it.

    Those that are listed with their question do not count; the scores may be changed. A triple has
    the scores of its row; rows ascend, and none is left out.
    Shapes: (u, n), (b,), (b,), (m,), (m,) -> (b,) twice.
    """
    place = (torch.from_numpy(each).to(scores.device).long() for each in (question, entity))
    better, equal = count_above(scores, row, true, *place)
    return better.cpu().numpy(), equal.cpu().numpy()


def counted_rows(rows: int, entities: int) -> int:
    """Return how many rows of scores the plain form compares at once.

    Never more than half of a chunk, so that with its scores they stay within the bound.
    """
    return max(1, min(COUNTED // max(1, entities), rows // 2))


@kernel(cpu="all_pairs_cpu", gpu="all_pairs_gpu")
def count_above(
    scores: Tensor, row: Tensor, true: Tensor, question: Tensor, entity: Tensor
) -> tuple[Tensor, Tensor]:
    """Do what :func:`count_scores` says, with all that is given on one device."""
    scores[question, entity] = torch.nan  # neither above nor equal to anything
    size = counted_rows(len(row), scores.shape[1])
    better, equal = torch.empty(2, len(row), dtype=torch.int64, device=scores.device)
    for start in range(0, len(row), size):
        part = slice(start, start + size)
        own, limit = scores[row[part]], true[part].unsqueeze(1)
        better[part] = (own > limit).count_nonzero(1)
        equal[part] = (own == limit).count_nonzero(1)
    return better, equal
