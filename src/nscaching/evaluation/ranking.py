"""Filtered ranks of the true entities among all entities, in chunks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.graph.pairs import pair_keys, ranges, sorted_distinct
from nscaching.kernels.availability import HAVE_NUMBA
from nscaching.kernels.threads import refuse_lost_threads
from nscaching.models import EmbeddingModel, Side

Ids = npt.NDArray[np.integer]
#: Entities above the true one and equal to it, per question, and whether its score is no number.
Counts = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]


class Count(Protocol):
    """Counts the entities that score above the true one, wherever they are."""

    def __call__(
        self,
        model: EmbeddingModel,
        side: Side,
        triples: np.ndarray,
        question: npt.NDArray[np.int64],
        entity: npt.NDArray[np.int64],
    ) -> Counts:
        """Count for triples (b, 3), without the entities that are listed with their question."""


class Answers:
    """For every question (h, r, ?), or (?, r, t) for the side HEAD, the entities that answer it."""

    #: Questions that a look through all triples answers, before these are sorted.
    _UNSORTED = 4

    def __init__(self, triples: Ids, side: Side, num_relations: int) -> None:
        self._columns = (2, 0) if side is Side.HEAD else (0, 2)
        self._triples, self._num_relations, self._asked = triples, num_relations, 0

    @cached_property
    def _sorted(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        anchor, answer = self._columns
        keys = pair_keys(self._triples[:, anchor], self._triples[:, 1], self._num_relations)
        order = np.argsort(keys, kind="stable")
        return keys[order], self._triples[order, answer].astype(np.int64)

    def of(
        self, anchors: Ids, relations: Ids
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the answers of questions as (question, entity) lists. Shapes: (b,), (b,)."""
        self._asked += len(anchors)
        if self._asked <= self._UNSORTED:
            return self._looked_through(anchors, relations)
        keys = pair_keys(np.asarray(anchors), np.asarray(relations), self._num_relations)
        mine, answers = self._sorted
        start = np.searchsorted(mine, keys, side="left")
        end = np.searchsorted(mine, keys, side="right")
        question, place = ranges(start, end - start)
        return question, answers[place]

    def _looked_through(
        self, anchors: Ids, relations: Ids
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        anchor, answer = self._columns
        asked = zip(anchors, relations, strict=True)
        mine, of = self._triples[:, anchor], self._triples[:, 1]
        places = [np.flatnonzero((mine == a) & (of == r)) for a, r in asked]
        question = np.repeat(np.arange(len(places)), [len(each) for each in places])
        found = np.concatenate([np.zeros(0, dtype=np.int64), *places])
        return question, self._triples[found, answer].astype(np.int64)


class AnswersBySide(dict[Side, Answers]):
    """The answers that triples give to the questions of either side, sorted when first needed."""

    def __init__(self, triples: Ids, num_relations: int) -> None:
        super().__init__()
        self._made_of = triples, num_relations

    def __missing__(self, side: Side) -> Answers:
        """Sort the triples for one side."""
        triples, num_relations = self._made_of
        self[side] = Answers(triples, side, num_relations)
        return self[side]


class KnownAnswers:
    """The answers to the questions of one side in a whole graph, and in other triples.

    Those of training come from its numbered pairs, which need no second copy of the triples.
    """

    def __init__(self, graph: KnowledgeGraph, others: Ids, side: Side) -> None:
        self._num_entities = graph.num_entities
        self._pairs = graph.rows.head if side is Side.HEAD else graph.rows.tail
        self._others = Answers(others, side, graph.num_relations)

    def of(
        self, anchors: Ids, relations: Ids
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the answers of questions as (question, entity) lists. Shapes: (b,), (b,)."""
        asked = np.asarray(anchors), np.asarray(relations)
        question, entity = self._pairs.completions(*asked)
        other_question, other = self._others.of(*asked)
        keys = np.concatenate(
            [
                pair_keys(question, entity, self._num_entities),
                pair_keys(other_question, other, self._num_entities),
            ]
        )
        question, found = np.divmod(sorted_distinct(keys), self._num_entities)
        return question, found


class KnownBySide(dict[Side, KnownAnswers]):
    """The known positives of the questions of either side, made when first needed."""

    def __init__(self, graph: KnowledgeGraph, others: Ids) -> None:
        super().__init__()
        self._made_of = graph, others

    def __missing__(self, side: Side) -> KnownAnswers:
        """Look up the pairs of one side."""
        self[side] = KnownAnswers(*self._made_of, side)
        return self[side]


#: Which share of the entities with the same score stands above the true one.
TIES = {"mean": 0.5, "optimistic": 0.0, "pessimistic": 1.0}
#: Tables of (queries x entities) floats alive at once while a chunk is ranked.
LIVE_TABLES = 3
DEFAULT_MEMORY_MB = 512


@dataclass(frozen=True)
class Ranks:
    """Ranks of one side, one per triple, and how many entities each was ranked among."""

    rank: np.ndarray  #: float64 (n,)
    among: np.ndarray  #: int64 (n,) entities left after filtering, the true one included


def known_positives(graph: KnowledgeGraph, ranked: np.ndarray) -> KnownBySide:
    """Return what answers the queries of each side, in the graph and in what is ranked."""
    own = any(ranked is split for split in (graph.train, graph.valid, graph.test))
    others = [graph.valid, graph.test, *([] if own else [ranked])]
    return KnownBySide(graph, np.concatenate(others))


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
        # Queries of one relation come together, so that they share the view of the entities.
        order = np.argsort(triples[:, 1], kind="stable")
        rank = np.empty(len(triples))
        among = np.empty(len(triples), dtype=np.int64)
        for start in range(0, len(triples), chunk):
            part = order[start : start + chunk]
            some = triples[part]
            question, entity = known[side].of(some[:, 2 if side is Side.HEAD else 0], some[:, 1])
            better, equal, unknown = (count or count_better)(model, side, some, question, entity)
            found = better + 1 + TIES[ties] * equal
            among[part] = graph.num_entities - np.bincount(question, minlength=len(part)) + 1
            rank[part] = np.where(unknown, among[part], found)
            if progress is not None:
                progress(len(part))
        ranks[side] = Ranks(rank, among)
    return ranks


def chunk_rows(num_entities: int, memory_mb: int) -> int:
    """Return how many queries are scored at once under a memory bound."""
    return max(1, int(memory_mb * 2**20 / (4 * LIVE_TABLES * max(1, num_entities))))


@torch.no_grad()
def count_better(
    model: EmbeddingModel,
    side: Side,
    triples: np.ndarray,
    question: npt.NDArray[np.int64],
    entity: npt.NDArray[np.int64],
) -> Counts:
    """Count for triples (b, 3), without the entities that are listed with their question."""
    columns = torch.from_numpy(np.ascontiguousarray(triples.T)).to(model.device).long()
    heads, relations, tails = columns
    anchor, target = (tails, heads) if side is Side.HEAD else (heads, tails)
    scores = model.score_all(side, anchor, relations)
    true = scores.gather(1, target.unsqueeze(1)).squeeze(1)
    return *count_scores(scores, true, question, entity), true.isnan().cpu().numpy()


def count_scores(
    scores: Tensor,
    true: Tensor,
    question: npt.NDArray[np.int64],
    entity: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Count the entities that score above the true one, and the same as it.

    Those that are listed with their question, ascending, do not count; the scores may be changed.
    Shapes: (b, n), (b,), (m,), (m,) -> (b,) twice.
    """
    if HAVE_NUMBA and scores.device.type == "cpu":  # in one pass over the scores
        from nscaching.evaluation import cpu_kernels

        offsets = np.concatenate([[0], np.cumsum(np.bincount(question, minlength=len(scores)))])
        better, equal = np.empty((2, len(scores)), dtype=np.int64)
        given = scores.numpy(), true.numpy(), offsets, entity
        cpu_kernels.count_better(*given, better, equal)
        return better, equal
    place = (torch.from_numpy(each).to(scores.device).long() for each in (question, entity))
    scores[tuple(place)] = torch.nan  # neither above nor equal to anything
    above, same = (scores > true.unsqueeze(1)), (scores == true.unsqueeze(1))
    return above.count_nonzero(1).cpu().numpy(), same.count_nonzero(1).cpu().numpy()
