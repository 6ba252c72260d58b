"""Where entities stand in the training triples: as head or tail of which relations, how often.

A *position* is a relation and a side of it, such as "tail of speaks". Entities of one type stand in
the same positions, so that positions serve as types in a graph that names none: an entity *fits* a
position if most of the entities that share its other positions stand in it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from nscaching.graph import KnowledgeGraph, PairRows, pair_rows
from nscaching.graph.names import SPLITS
from nscaching.models import Side

#: A relation has one answer where at least this share of its questions has (see ``single``).
ONE_ANSWER = 0.95
#: The least fit of an entity that was never seen in a position, for it to be plausible there.
PLAUSIBLE = 0.05
#: Added to every share before its logarithm is taken.
_FLOOR = 1e-3
#: Bytes of columns that are kept once they have been computed.
_KEPT_BYTES = 1 << 27

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Column:
    """All entities in one position."""

    counts: Floats  #: (entities,) training facts in which each stands there
    fit: Floats  #: (entities,) log of the mean share of its other positions' entities found there

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        """Whether each entity stands there in training; shape: (entities,)."""
        marks: npt.NDArray[np.bool_] = self.counts > 0
        return marks

    @property
    def plausible(self) -> npt.NDArray[np.bool_]:
        """Whether each entity was seen there or fits; shape: (entities,)."""
        marks: npt.NDArray[np.bool_] = self.seen | (self.fit >= np.log(PLAUSIBLE))
        return marks


class Positions:
    """The positions of a graph's entities: from its training triples, or from all it knows."""

    def __init__(self, graph: KnowledgeGraph, *, whole: bool = False) -> None:
        splits = SPLITS if whole else SPLITS[:1]
        triples = np.concatenate([graph.split(split) for split in splits])
        heads, relations, tails = triples.astype(np.int64).T
        sizes = graph.num_entities, graph.num_relations
        self.num_entities, self.num_relations = sizes
        # One line per entity and position, sorted by both: its entity, position and facts.
        places = 2 * graph.num_relations
        lines = np.concatenate([heads * places + relations, tails * places + relations + sizes[1]])
        keys, counts = np.unique(lines, return_counts=True)
        self._entity, self._place = np.divmod(keys, max(1, places))
        self._counts = counts.astype(np.float32)
        self._from = np.searchsorted(self._entity, np.arange(sizes[0] + 1))
        self._entities_at = np.bincount(self._place, minlength=places)
        self._positions_of = np.diff(self._from)  #: distinct positions of each entity
        by_place = np.argsort(self._place, kind="stable")
        ends = np.cumsum(self._entities_at)
        self._lines_at = np.split(by_place, ends[:-1]) if places else []
        #: Share of the questions (?, r, t), and of (h, r, ?), with one answer; (2, relations).
        self.single = np.stack(
            [
                _single_share(pair_rows(triples, side, *sizes), graph.num_relations)
                for side in ("head", "tail")
            ]
        )
        self._columns: dict[int, Column] = {}

    @classmethod
    def of(cls, graph: KnowledgeGraph, *, whole: bool = False) -> Positions:
        """Return the positions of a graph, computed once."""
        kept = _KEPT.setdefault(graph, {})
        if whole not in kept:
            kept[whole] = cls(graph, whole=whole)
        return kept[whole]

    def column(self, side: Side, relation: int) -> Column:
        """Return all entities in the position ``side`` of a relation."""
        place = int(side) * self.num_relations + relation
        if place not in self._columns:
            bytes_each = 8 * max(1, self.num_entities)
            while self._columns and (len(self._columns) + 1) * bytes_each > _KEPT_BYTES:
                self._columns.pop(next(iter(self._columns)))
            self._columns[place] = self._compute(place)
        return self._columns[place]

    def _compute(self, place: int) -> Column:
        lines = self._lines_at[place]
        here = self._entity[lines]
        counts = np.zeros(self.num_entities, dtype=np.float32)
        counts[here] = self._counts[lines]
        # How many of the entities here stand in each other position, as a share of those there.
        each = np.repeat(self._from[here], self._positions_of[here])
        within = np.arange(len(each)) - np.repeat(
            np.cumsum(self._positions_of[here]) - self._positions_of[here], self._positions_of[here]
        )
        together = np.bincount(self._place[each + within], minlength=len(self._entities_at))
        logs = np.log(together / np.maximum(self._entities_at, 1) + _FLOOR)
        seen = counts > 0
        total = np.bincount(self._entity, weights=logs[self._place], minlength=self.num_entities)
        others = self._positions_of - seen
        alone = np.log(len(here) / max(1, self.num_entities) + _FLOOR)
        mean = (total - np.log(1 + _FLOOR) * seen) / np.maximum(others, 1)
        return Column(counts, np.where(others > 0, mean, alone).astype(np.float32))

    def has_one_answer(self, side: Side, relation: int) -> bool:
        """Tell whether questions for this side of a relation have one answer."""
        return bool(self.single[side, relation] >= ONE_ANSWER)


_KEPT: WeakKeyDictionary[KnowledgeGraph, dict[bool, Positions]] = WeakKeyDictionary()


def _single_share(pairs: PairRows, num_relations: int) -> npt.NDArray[np.float64]:
    """Return the share of questions with one answer, drawn towards one half where they are few."""
    single = np.bincount(
        pairs.relation, weights=np.diff(pairs.offsets) == 1, minlength=num_relations
    )
    return (single + 1) / (np.bincount(pairs.relation, minlength=num_relations) + 2)
