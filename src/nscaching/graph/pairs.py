"""The pairs (h, r) and (r, t) of triples: numbered, with the entities that complete each.

A cache keeps one row per pair (r, t) and one per pair (h, r). Numbering the pairs once turns every
later look-up into a gather: a training triple knows its two rows by index, and a row knows the
entities that complete it to a training triple.
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

    of_triple: npt.NDArray[np.int32]
    """Row of each triple; shape: (triples,)."""
    anchor: npt.NDArray[np.int32]
    """The fixed entity of each pair: the tail for head rows, the head for tail rows."""
    relation: npt.NDArray[np.int32]
    """The relation of each pair; shape: (rows,)."""
    offsets: npt.NDArray[np.int64]
    """Row i owns ``answers[offsets[i]:offsets[i + 1]]``; shape: (rows + 1,)."""
    answers: npt.NDArray[np.int32]
    """Entities that complete a pair to a triple, ascending within a row."""

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
    anchors, answers = (
        triples[:, 2 if side == "head" else 0],
        triples[:, 0 if side == "head" else 2],
    )
    pairs = pair_keys(triples[:, 1], anchors, num_entities)
    order, new_pair, new_fact = _sorted_facts(pairs, answers, num_entities, num_relations)
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


def _sorted_facts(
    pairs: Keys, answers: _Integers, num_entities: int, num_relations: int
) -> tuple[Keys, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Sort by pair, then by answer; say where a new pair and where a new fact begins."""
    keys = fact_keys(pairs, answers, num_entities, num_relations)
    order = np.argsort(keys)
    keys = keys[order]
    new_fact = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new_fact[1:])
    keys //= max(num_entities, 1)
    new_pair = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new_pair[1:])
    return order, new_pair, new_fact


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
