"""The pairs (h, r) and (r, t) of triples: numbered, with the entities that complete each.

A cache keeps one row per pair (r, t) and one per pair (h, r). Numbering the pairs once turns every
later look-up into a gather: a training triple knows its two rows by index, and a row knows the
entities that complete it to a training triple. Tails per head and heads per tail are counted here.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

SideName = Literal["head", "tail"]
Keys = npt.NDArray[np.int64]
_Integers = npt.NDArray[np.integer[Any]]
_Triples = npt.NDArray[np.int32]
#: Triples sorted at once, unless one relation has more, and those of all parts in memory, likewise.
_PART, _PARTS = 1 << 18, 1 << 22


@dataclass(frozen=True)
class PairRows:
    """The distinct pairs on one side, ordered by relation and then by anchor."""

    of_triple: npt.NDArray[np.int32]  #: (triples,) row of each triple
    anchor: npt.NDArray[np.int32]  #: (rows,) the tail for head rows, the head for tail rows
    relation: npt.NDArray[np.int32]  #: (rows,)
    offsets: npt.NDArray[np.int64]  #: (rows + 1,) row i has ``answers[offsets[i]:offsets[i + 1]]``
    answers: npt.NDArray[np.int32]  #: entities that complete a pair, ascending within a row

    def __len__(self) -> int:
        """How many distinct pairs there are."""
        return len(self.anchor)

    def find(self, anchors: _Integers, relations: _Integers) -> Keys:
        """Return the rows of pairs, -1 where training has no such pair. Shapes: (n,) -> (n,)."""
        asked = np.asarray(relations).astype(self.relation.dtype)  # of another type all are copied
        low = np.searchsorted(self.relation, asked, side="left")
        stop = np.searchsorted(self.relation, asked, side="right")
        end, last = stop, max(len(self) - 1, 0)
        if not len(self):
            return np.full(len(low), -1)
        while (open_ := low < stop).any():  # a binary search for all pairs at once
            middle = (low + stop) // 2
            below = open_ & (self.anchor[np.minimum(middle, last)] < anchors)
            low, stop = np.where(below, middle + 1, low), np.where(below, stop, middle)
        found = (low < end) & (self.anchor[np.minimum(low, last)] == anchors)
        return np.where(found, low, -1)

    def contains(
        self, anchors: _Integers, relations: _Integers, answers: _Integers
    ) -> npt.NDArray[np.bool_]:
        """Tell which triples are training triples. Shapes: (n,) each."""
        pair, entity = self.completions(anchors, relations)
        found = np.zeros(len(anchors), dtype=bool)
        found[pair[entity == answers[pair]]] = True
        return found

    def completions(self, anchors: _Integers, relations: _Integers) -> tuple[Keys, _Triples]:
        """Return the answers of pairs as (pair, entity) lists. Shapes: (n,) -> (m,), (m,)."""
        rows = self.find(anchors, relations)
        starts = np.where(rows < 0, 0, self.offsets[rows])
        pair, place = ranges(starts, np.where(rows < 0, 0, self.offsets[rows + 1]) - starts)
        return pair, self.answers[place]


class TrainingRows(NamedTuple):
    """The rows of both sides: ``head`` for pairs (r, t), ``tail`` for pairs (h, r)."""

    head: PairRows
    tail: PairRows


class PairPart(NamedTuple):
    """The pairs of some relations, and what completes them."""

    anchor: npt.NDArray[np.int32]  #: (rows,)
    relation: npt.NDArray[np.int32]  #: (rows,)
    counts: Keys  #: (rows,) how many answers each pair has
    answers: npt.NDArray[np.int32]  #: (facts,)


def pair_rows(
    triples: _Integers, side: SideName, num_entities: int, num_relations: int
) -> PairRows:
    """Number the distinct pairs that are left when ``side`` is taken out of each triple."""
    of_triple = np.empty(len(triples), dtype=np.int32)
    parts = list(pair_parts(triples, side, num_entities, num_relations, of_triple))
    nothing = PairPart(*(np.zeros(0, dtype) for dtype in (np.int32, np.int32, int, np.int32)))
    anchor, relation, counts, answers = map(np.concatenate, zip(nothing, *parts, strict=True))
    offsets = np.zeros(len(anchor) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return PairRows(of_triple, anchor, relation, offsets, answers)


def pair_parts(
    triples: _Integers,
    side: SideName,
    num_entities: int,
    num_relations: int,
    of_triple: npt.NDArray[np.int32],
) -> Iterator[PairPart]:
    """Yield the pairs of one side, relation by relation; fill the row of each triple.

    Sorting some relations at a time keeps the keys in the processor's cache, and memory bounded by
    the largest relation, with some 40 bytes per fact: neither the triples nor the result need to be
    in memory.
    """
    if side not in ("head", "tail"):
        raise ValueError(f"side must be 'head' or 'tail', not {side!r}")
    sizes = (max(num_entities, 1), max(num_relations, 1))
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # sorting lets other threads run
        waiting: deque[Future[tuple[slice | Keys, npt.NDArray[np.int32], PairPart]]] = deque()
        rows = held = 0

        def first() -> PairPart:
            nonlocal rows, held
            index, row, part = waiting.popleft().result()
            row += np.int32(rows)
            of_triple[index] = row
            rows += len(part.anchor)
            held -= len(row)
            return part

        for index in _by_relation(triples, sizes):
            size = index.stop - index.start if isinstance(index, slice) else len(index)
            while waiting and (len(waiting) > 4 or held + size > _PARTS):
                yield first()
            waiting.append(pool.submit(_sorted_part, triples, index, side, sizes[0]))
            held += size
        while waiting:
            yield first()


def _by_relation(triples: _Integers, sizes: tuple[int, int]) -> Iterator[slice | Keys]:
    """Yield the places of the triples of some relations, ascending, with keys of 64 bits."""
    num_entities, num_relations = sizes
    ends, ascending = _relation_ends(triples, num_relations)
    order = None
    if not ascending:
        relations = triples[:, 1]
        short = num_relations <= 1 << 16  # NumPy sorts 16 bits in one pass
        order = np.argsort(relations.astype(np.uint16) if short else relations, kind="stable")
    most = max(1, (2**63 - 1) // num_entities**2)
    start = 0
    while start < len(triples):
        relation = int(np.searchsorted(ends, start, side="right"))  # the next that has triples
        stop = int(np.searchsorted(ends, start + _PART, side="left"))  # the relation that fills it
        stop = min(stop + 1, relation + most, num_relations)
        end = int(ends[stop - 1])
        yield slice(start, end) if order is None else order[start:end]
        start = end


def _relation_ends(triples: _Integers, num_relations: int) -> tuple[Keys, bool]:
    """Return how many triples have a relation up to each, and whether they are sorted by it.

    Block by block: of a column of mapped triples NumPy would make a copy of 8 bytes per fact.
    """
    counts, last, ascending = np.zeros(num_relations, dtype=np.int64), -1, True
    for block in blocks_of(triples):
        relations = block[:, 1]
        counts += np.bincount(relations, minlength=num_relations)
        ascending &= bool(last <= relations[0] and (relations[:-1] <= relations[1:]).all())
        last = int(relations[-1])
    return np.cumsum(counts), ascending


def _sorted_part(
    triples: _Integers, index: slice | Keys, side: SideName, num_entities: int
) -> tuple[slice | Keys, npt.NDArray[np.int32], PairPart]:
    """Number the pairs of some triples; return with them which triples, and the row of each."""
    heads, relations, tails = triples[index].T
    anchors, answers = (tails, heads) if side == "head" else (heads, tails)
    keys = _part_keys(anchors, relations, answers, num_entities)
    order = None
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys)
        keys = keys[order]
    new_fact, new_pair = np.ones((2, len(keys)), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new_fact[1:])
    keys //= num_entities
    np.not_equal(keys[1:], keys[:-1], out=new_pair[1:])
    del keys
    row = np.cumsum(new_pair, dtype=np.int32)
    row -= 1
    facts, first = np.flatnonzero(new_fact), np.flatnonzero(new_pair)
    counts = np.diff(np.append(np.flatnonzero(new_pair[new_fact]), len(facts)))
    if order is not None:
        facts, first = order[facts], order[first]
        unsorted = np.empty_like(row)
        unsorted[order] = row
        row = unsorted
    return index, row, PairPart(anchors[first], relations[first], counts, answers[facts])


def blocks_of(triples: _Integers, size: int = 1 << 20) -> Iterator[Any]:
    """Yield mapped triples in blocks that are in memory."""
    for start in range(0, len(triples), size):
        yield np.array(triples[start : start + size])


def pair_keys(first: _Integers, second: _Integers, num_second: int) -> Keys:
    """Return one number per pair of ids; they sort by the first id, then by the second."""
    keys: Keys = first.astype(np.int64)
    keys *= max(num_second, 1)
    keys += second
    return keys


def fact_keys(pairs: Keys, answers: _Integers, num_entities: int, num_relations: int) -> Keys:
    """Return one number per fact: a pair's key and the entity that completes the pair.

    They sort by pair, then by answer, and are to be compared with those of the same call only:
    where the product of all three ranges does not fit in 64 bits, the pairs that occur are numbered
    first.
    """
    if num_entities * num_entities * num_relations >= 2**63:
        pairs = np.unique(pairs, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return pair_keys(pairs, answers, num_entities)


def triple_keys(triples: _Integers, num_entities: int, num_relations: int) -> Keys:
    """Return the :func:`fact_keys` of triples, the tail completing head and relation; (n, 3)."""
    pairs = pair_keys(triples[:, 0], triples[:, 1], num_relations)
    return fact_keys(pairs, triples[:, 2], num_entities, num_relations)


def ranges(starts: Keys, counts: Keys) -> tuple[Keys, Keys]:
    """Return the numbers start, start + 1, ... of each range, and whose each is: (n,) -> (m,)."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)


def sorted_distinct(keys: Keys) -> Keys:
    """Return the distinct keys, ascending; the array given is sorted.

    NumPy's own hashes them first, which takes ten times as long where most are distinct.
    """
    keys.sort()
    first = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys[first]


def contained(
    triples: _Integers, among: _Integers, num_entities: int, num_relations: int
) -> npt.NDArray[np.bool_]:
    """Tell which triples are among others. Shapes: (n, 3), (m, 3) -> (n,)."""
    if len(among) > 2 * len(triples):  # most of them have a head that is not asked about
        asked = np.zeros(num_entities, dtype=bool)
        asked[triples[:, 0]] = True
        among = among[asked[among[:, 0]]]
    keys = triple_keys(np.concatenate([triples, among]), num_entities, num_relations)
    found: npt.NDArray[np.bool_] = np.isin(keys[: len(triples)], keys[len(triples) :], kind="sort")
    return found


def distinct(triples: _Triples, num_entities: int, num_relations: int) -> _Triples:
    """Drop repeated triples, keeping the first of each and their order."""
    sizes = (max(num_entities, 1), max(num_relations, 1))
    repeats = [np.zeros(0, dtype=np.int64)]
    for index in _by_relation(triples, sizes):
        heads, relations, tails = triples[index].T
        keys = _part_keys(heads, relations, tails, sizes[0])
        ordered = np.sort(keys)
        if (ordered[1:] == ordered[:-1]).any():
            again = np.ones(len(keys), dtype=bool)
            again[np.unique(keys, return_index=True)[1]] = False
            places = np.flatnonzero(again)
            repeats.append(places + index.start if isinstance(index, slice) else index[places])
    places = np.concatenate(repeats)
    return np.ascontiguousarray(np.delete(triples, places, axis=0)) if len(places) else triples


def _part_keys(
    first: _Integers, relations: _Integers, second: _Integers, num_entities: int
) -> Keys:
    """Return keys of triples of few relations; they sort by relation, first and second entity."""
    return pair_keys(
        pair_keys(relations - relations.min(), first, num_entities), second, num_entities
    )


MANY = 1.5
"""From this average on, a side of a relation counts as N (the paper's threshold)."""

CARDINALITIES = ("1-1", "1-N", "N-1", "N-N", "no training fact")
"""Classes of relations: heads first, tails second; the last where there is nothing to count."""


@dataclass(frozen=True)
class RelationStatistics:
    """Averages over the distinct training triples; one entry per relation."""

    tails_per_head: npt.NDArray[np.float64]  #: 0 for a relation that training does not have
    heads_per_tail: npt.NDArray[np.float64]  #: likewise
    #: Bernoulli sampling: how often to replace the head; 0.5 for a relation without triples.
    head_probability: npt.NDArray[np.float32]
    cardinality: list[str]  #: of :data:`CARDINALITIES`


def relation_statistics(rows: TrainingRows, num_relations: int) -> RelationStatistics:
    """Count from the numbered pairs: triples of a relation over its distinct pairs."""
    tails_per_head = _answers_per_pair(rows.tail, num_relations)
    heads_per_tail = _answers_per_pair(rows.head, num_relations)
    total = tails_per_head + heads_per_tail
    share = np.full(num_relations, 0.5)
    np.divide(tails_per_head, total, out=share, where=total > 0)
    number = 2 * (heads_per_tail >= MANY) + (tails_per_head >= MANY)
    number[total == 0] = len(CARDINALITIES) - 1
    cardinality = [CARDINALITIES[each] for each in number]
    return RelationStatistics(tails_per_head, heads_per_tail, share.astype(np.float32), cardinality)


def _answers_per_pair(rows: PairRows, num_relations: int) -> npt.NDArray[np.float64]:
    """Average the number of answers of a relation's pairs."""
    ends = np.searchsorted(rows.relation, np.arange(num_relations + 1))  # they are sorted
    pairs, answers = np.diff(ends), np.diff(rows.offsets[ends])
    average = np.zeros(num_relations)
    np.divide(answers, pairs, out=average, where=pairs > 0)
    return average
