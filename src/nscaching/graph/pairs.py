"""The pairs (h, r) and (r, t) of triples: numbered, with the entities that complete each.

A cache keeps one row per pair (r, t) and one per pair (h, r). Numbering the pairs once turns every
later look-up into a gather: a training triple knows its two rows by index, and a row knows the
entities that complete it to a training triple. Tails per head and heads per tail are counted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

SideName = Literal["head", "tail"]
Keys = npt.NDArray[np.int64]
_Integers = npt.NDArray[np.integer[Any]]
_Triples = npt.NDArray[np.int32]


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


@dataclass(frozen=True)
class TrainingRows:
    """The rows of both sides: ``head`` for pairs (r, t), ``tail`` for pairs (h, r)."""

    head: PairRows
    tail: PairRows


def pair_rows(
    triples: npt.NDArray[np.int32], side: SideName, num_entities: int, num_relations: int
) -> PairRows:
    """Number the distinct pairs that are left when ``side`` is taken out of each triple."""
    if side not in ("head", "tail"):
        raise ValueError(f"side must be 'head' or 'tail', not {side!r}")
    anchors, answers = triples[:, ::2].T[::-1] if side == "head" else triples[:, ::2].T
    pairs = pair_keys(triples[:, 1], anchors, num_entities)
    keys = fact_keys(pairs, answers, num_entities, num_relations)
    order = np.argsort(keys)
    keys = keys[order]
    new_fact, new_pair = np.ones((2, len(keys)), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new_fact[1:])
    keys //= max(num_entities, 1)
    np.not_equal(keys[1:], keys[:-1], out=new_pair[1:])
    of_triple = np.empty(len(triples), dtype=np.int32)
    of_triple[order] = np.cumsum(new_pair, dtype=np.int32) - 1
    first = order[new_pair]  # one triple per pair
    facts = order[new_fact]  # one triple per distinct fact
    return PairRows(
        of_triple=of_triple,
        anchor=anchors[first].astype(np.int32),
        relation=triples[first, 1].astype(np.int32),
        offsets=np.append(np.flatnonzero(new_pair[new_fact]), len(facts)).astype(np.int64),
        answers=answers[facts].astype(np.int32),
    )


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


def contained(
    triples: _Integers, among: _Integers, num_entities: int, num_relations: int
) -> npt.NDArray[np.bool_]:
    """Tell which triples are among others. Shapes: (n, 3), (m, 3) -> (n,)."""
    keys = triple_keys(np.concatenate([triples, among]), num_entities, num_relations)
    found: npt.NDArray[np.bool_] = np.isin(keys[: len(triples)], keys[len(triples) :])
    return found


def distinct(triples: _Triples, num_entities: int, num_relations: int) -> _Triples:
    """Drop repeated triples, keeping the first of each and their order."""
    keys = triple_keys(triples, num_entities, num_relations)
    ordered = np.sort(keys)
    if not (ordered[1:] == ordered[:-1]).any():
        return triples
    del ordered
    first = np.unique(keys, return_index=True)[1]
    first.sort()
    return np.ascontiguousarray(triples[first])


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
    pairs = np.bincount(rows.relation, minlength=num_relations).astype(np.float64)
    answers = np.bincount(rows.relation, weights=np.diff(rows.offsets), minlength=num_relations)
    average = np.zeros(num_relations)
    np.divide(answers, pairs, out=average, where=pairs > 0)
    return average
