"""Positions: what the training triples say of an entity, whatever the model says.

A *position* is a relation and a side of it, such as "tail of speaks". Entities of one type stand in
the same positions, so that positions serve as types in a graph that names none: an entity *fits* a
position if most of the entities that share its other positions stand in it too.

A line is an entity in a position. Lines are kept in two orders, by position, which comes from the
numbered pairs of the graph, and by entity.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import SPLITS, Bools, Floats, Ids, Integers, Longs
from nscaching.graph.pairs import pair_keys, ranges
from nscaching.models import Side

#: A relation has one answer where at least this share of its questions has (see ``single``).
ONE_ANSWER = 0.95
#: The least fit of an entity that was never seen in a position, for it to be plausible there.
PLAUSIBLE = 0.05
#: Added to every share before its logarithm is taken.
_FLOOR = 1e-3
#: Bytes of columns that are kept once they have been computed.
_KEPT_BYTES = 1 << 27
#: Entities whose lines are added up at once.
_BLOCK = 1 << 18


@dataclass(frozen=True)
class Column:
    """Entities in one position: all, or some."""

    counts: npt.NDArray[np.float32]  #: (entities,) training facts in which each stands there
    #: (entities,) log of the mean share of its other positions' entities found there
    fit: npt.NDArray[np.float32]

    @property
    def seen(self) -> Bools:
        """Whether each entity stands there in training; shape: (entities,)."""
        return np.asarray(self.counts > 0)

    @property
    def plausible(self) -> Bools:
        """Whether each entity was seen there or fits; shape: (entities,)."""
        return np.asarray(self.seen | (self.fit >= np.log(PLAUSIBLE)))


class Positions:
    """The positions of a graph's entities: from its training triples, or from all it knows."""

    def __init__(self, graph: KnowledgeGraph, *, whole: bool = False) -> None:
        self.num_entities, self.num_relations = graph.num_entities, graph.num_relations
        self.whole = whole  #: whether it knows the facts of all splits
        # By position: entities, ascending in each; facts of each line; where a position begins.
        pairs, relations = (graph.rows.tail, graph.rows.head), np.arange(self.num_relations + 1)
        ends = [np.searchsorted(side.relation, relations.astype(np.int32)) for side in pairs]
        self._ends = np.concatenate([ends[0][:-1], ends[1] + ends[0][-1]])
        self._entity = np.concatenate([side.anchor for side in pairs])
        self._counts = np.concatenate([np.diff(side.offsets) for side in pairs]).astype(np.float32)
        if whole:
            self._add(np.concatenate([graph.split(split) for split in SPLITS[1:]]))
        # By entity: positions, ascending in each; where an entity begins.
        order = np.argsort(self._entity, kind="stable")
        self._place = self._places()[order]
        count = np.bincount(self._entity, minlength=self.num_entities)
        self._from = np.concatenate([[0], np.cumsum(count)])
        self._entities_at = np.diff(self._ends)
        self._positions_of = np.diff(self._from)  #: distinct positions of each entity
        #: Share of the questions (?, r, t), and of (h, r, ?), with one answer, drawn towards one
        #: half where they are few; (2, relations). An entity asks from where it stands.
        ones_before = np.concatenate([[0], np.cumsum(self._counts == 1)])
        single = np.diff(ones_before[self._ends]) + 1
        self.single = (single / (self._entities_at + 2)).reshape(2, -1)[::-1]
        self._columns: dict[int, Column] = {}

    def _places(self) -> Ids:
        """Return the position of each line."""
        positions = np.arange(2 * self.num_relations, dtype=np.int32)
        return np.repeat(positions, np.diff(self._ends))

    def _add(self, triples: Ids) -> None:
        """Add the lines of other triples; (n, 3)."""
        heads, relations, tails = triples.astype(np.int64).T
        places = np.concatenate([relations, relations + self.num_relations])
        asked = pair_keys(places, np.concatenate([heads, tails]), self.num_entities)
        keys, counts = np.unique(asked, return_counts=True)
        lines = pair_keys(self._places(), self._entity, self.num_entities)
        at = np.searchsorted(lines, keys)
        there = at < len(lines)
        there[there] = lines[at[there]] == keys[there]
        self._counts[at[there]] += counts[there]
        new, at = keys[~there], at[~there]
        self._counts = np.insert(self._counts, at, counts[~there])
        place, entity = np.divmod(new, self.num_entities)
        self._entity = np.insert(self._entity, at, entity)
        self._ends = self._ends + np.searchsorted(place, np.arange(len(self._ends)))

    @classmethod
    def of(cls, graph: KnowledgeGraph, *, whole: bool = False) -> Positions:
        """Return the positions of a graph, computed once."""
        kept = _KEPT.setdefault(graph, {})
        if whole not in kept:
            kept[whole] = cls(graph, whole=whole)
        return kept[whole]

    def column(self, side: Side, relation: int) -> Column:
        """Return all entities in the position ``side`` of a relation."""
        place = self.place(side, relation)
        if place not in self._columns:
            bytes_each = 8 * max(1, self.num_entities)
            while self._columns and (len(self._columns) + 1) * bytes_each > _KEPT_BYTES:
                self._columns.pop(next(iter(self._columns)))
            self._columns[place] = self._compute(side, relation)
        return self._columns[place]

    def rows(self, side: Side, relation: int, entities: Integers) -> Column:
        """Return some entities in the position ``side`` of a relation, at the cost of those."""
        place = self.place(side, relation)
        if place in self._columns:
            whole = self._columns[place]
            return Column(whole.counts[entities], whole.fit[entities])
        return self._compute(side, relation, np.asarray(entities, dtype=np.int64))

    def entities_at(self, side: Side, relation: int) -> Ids:
        """Return the entities that were seen in the position ``side`` of a relation, ascending."""
        return self._entity[self._lines(self.place(side, relation))]

    def seen(self, side: Side, relation: int, entities: Integers) -> Bools:
        """Tell which entities were seen in the position ``side`` of a relation; (n,) -> (n,)."""
        return is_among(entities, self.entities_at(side, relation))

    def shares(self, side: Side, relation: int) -> Floats:
        """Return which share of the entities of each position stands in this; (2 * relations,)."""
        here = self.entities_at(side, relation)
        _, theirs = ranges(self._from[here], self._positions_of[here])
        together = np.bincount(self._place[theirs], minlength=len(self._entities_at))
        shares: Floats = together / np.maximum(self._entities_at, 1)
        return shares

    def place(self, side: Side, relation: int) -> int:
        """Return the number of a position."""
        return int(side) * self.num_relations + relation

    def _lines(self, place: int) -> slice:
        return slice(int(self._ends[place]), int(self._ends[place + 1]))

    def _compute(self, side: Side, relation: int, entities: Longs | None = None) -> Column:
        """Return a column, or its rows of some entities."""
        lines = self._lines(self.place(side, relation))
        here = self._entity[lines]
        logs = np.log(self.shares(side, relation) + _FLOOR)
        if entities is None:
            counts = np.zeros(self.num_entities, dtype=np.float32)
            counts[here] = self._counts[lines]
            total, others = self._sums(logs), self._positions_of - (counts > 0)
        else:
            line = np.minimum(np.searchsorted(here, entities.astype(here.dtype)), len(here) - 1)
            counts = np.zeros(len(entities), dtype=np.float32)
            if len(here):
                counts = np.where(here[line] == entities, self._counts[lines][line], counts)
            owner, own = ranges(self._from[entities], self._positions_of[entities])
            added = np.bincount(owner, logs[self._place[own]], minlength=len(entities))
            total = np.asarray(added, dtype=np.float64)
            others = self._positions_of[entities] - (counts > 0)
        alone = np.log(len(here) / max(1, self.num_entities) + _FLOOR)
        mean = (total - np.log(1 + _FLOOR) * (counts > 0)) / np.maximum(others, 1)
        return Column(counts, np.where(others > 0, mean, alone).astype(np.float32))

    def _sums(self, of_place: Floats) -> Floats:
        """Add a number of each position up over the positions of each entity; (entities,)."""
        total = np.zeros(self.num_entities)
        for start in range(0, self.num_entities, _BLOCK):
            first = self._from[start : start + _BLOCK + 1]
            some = np.flatnonzero(np.diff(first))  # without a training fact there is no line
            if len(some):
                line = of_place[self._place[first[0] : first[-1]]]
                total[start + some] = np.add.reduceat(line, first[some] - first[0])
        return total

    def has_one_answer(self, side: Side, relation: int) -> bool:
        """Tell whether questions for this side of a relation have one answer."""
        return bool(self.single[side, relation] >= ONE_ANSWER)


_KEPT: WeakKeyDictionary[KnowledgeGraph, dict[bool, Positions]] = WeakKeyDictionary()


def is_among(values: Integers, ascending: Integers) -> Bools:
    """Tell which values are among ascending ones, at the cost of the former; (n,), (m,) -> (n,)."""
    if not len(ascending):
        return np.zeros(len(values), dtype=bool)
    place = np.searchsorted(ascending, np.asarray(values).astype(ascending.dtype))
    found: Bools = ascending[np.minimum(place, len(ascending) - 1)] == values
    return found
