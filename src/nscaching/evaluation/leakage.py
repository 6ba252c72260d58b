"""Test facts that training gives away through inverse, symmetric or duplicate relations.

Two relations overlap strongly where at least half of the training facts of each have a counterpart
under the other: (h, r', t) for duplicates, (t, r', h) for inverses; a symmetric relation is its own
inverse. A test fact (h, r, t) leaks where such a counterpart is in training: a model answers it by
copying. WN18 and FB15K are known for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.graph import KnowledgeGraph
from nscaching.graph.pairs import contained, ranges

#: The share of the facts of both relations that must have a counterpart under the other.
STRONG = 0.5
#: From this share of the test facts on there is something to say.
WORTH_SAYING = 0.01

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Leakage:
    """How many held-out facts have a counterpart in training, and through which relations."""

    split: str
    leaked: int
    facts: int
    pairs: list[tuple[str, str, str]]  #: two relations and "inverse" or "duplicate", most first

    @property
    def share(self) -> float:
        """The share of the held-out facts that leak."""
        return self.leaked / self.facts if self.facts else 0.0

    @property
    def remark(self) -> str | None:
        """One sentence for a person, where there is something to say."""
        if self.share < WORTH_SAYING:
            return None
        one, other, kind = self.pairs[0]
        example = f"{one} is symmetric" if one == other else f"{one} and {other} are {kind}s"
        return (
            f"{self.share:.0%} of the {self.split} facts have an inverse or duplicate in train "
            f"({example}): these are answered by copying, so the metrics flatter."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        pairs = [{"relations": [one, other], "kind": kind} for one, other, kind in self.pairs]
        return {"split": self.split, "leaked": self.leaked, "share": self.share, "pairs": pairs}


def find_leakage(graph: KnowledgeGraph, split: str = "test") -> Leakage:
    """Count the facts of a split that training gives away."""
    facts = graph.split(split).astype(np.int64)
    train = graph.train.astype(np.int64)
    leaked = np.zeros(len(facts), dtype=bool)
    through: dict[tuple[int, int, str], int] = {}
    for kind, columns in (("duplicate", [0, 2]), ("inverse", [2, 0])):
        partners = _strong_pairs(train, columns, graph.num_relations)
        at, counterparts = _counterparts(facts, columns, partners)
        found = contained(counterparts, train, graph.num_entities, graph.num_relations)
        leaked[at[found]] = True
        pairs = np.stack([facts[at[found], 1], counterparts[found, 1]], axis=1)
        for (r, other), count in zip(*np.unique(pairs, axis=0, return_counts=True), strict=True):
            key = (min(int(r), int(other)), max(int(r), int(other)), kind)
            through[key] = through.get(key, 0) + int(count)
    ordered = sorted(through, key=lambda key: -through[key])
    named = [(graph.relations[r], graph.relations[s], kind) for r, s, kind in ordered]
    return Leakage(split, int(leaked.sum()), len(facts), named)


def _strong_pairs(train: Ids, columns: list[int], relations: int) -> Ids:
    """Return pairs (r, r') that overlap strongly when r' is read in these columns; (n, 2)."""
    from scipy import sparse

    pairs = np.concatenate([train[:, [0, 2]], train[:, columns]])
    number = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(2, -1)
    shape = (int(number.max(initial=-1)) + 1, relations)
    ones = np.ones(len(train), dtype=np.int64)
    plain, turned = (sparse.csr_array((ones, (rows, train[:, 1])), shape) for rows in number)
    both = (plain.T @ turned).tocoo()
    of_relation = np.bincount(train[:, 1], minlength=relations)
    largest = np.maximum(of_relation[both.row], of_relation[both.col])
    strong = both.data >= STRONG * largest
    if columns == [0, 2]:  # every relation is its own duplicate
        strong &= both.row != both.col
    return np.stack([both.row[strong], both.col[strong]], axis=1).astype(np.int64)


def _counterparts(facts: Ids, columns: list[int], partners: Ids) -> tuple[Ids, Ids]:
    """Return the counterparts that facts would have; shapes: (m,) which fact, (m, 3) triples."""
    order = np.argsort(partners[:, 0], kind="stable")
    first, partner = partners[order, 0], partners[order, 1]
    start, end = (np.searchsorted(first, facts[:, 1], side) for side in ("left", "right"))
    at, place = ranges(start, end - start)
    ends = facts[at][:, columns]
    return at, np.stack([ends[:, 0], partner[place], ends[:, 1]], axis=1)
