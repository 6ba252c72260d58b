"""Attributes: what goes with the facts that entities share.

An *attribute* is a fact without one of its entities, such as "in country France", which many towns
have. Positions alone cannot tell the towns of France from those of Monaco; attributes can: if none
of the towns of Monaco is in a state, another one hardly is, and no fact is missing.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from nscaching.evaluation.positions import Positions
from nscaching.graph import KnowledgeGraph, PairRows
from nscaching.graph.names import SPLITS, Floats, Ids, Integers, Longs
from nscaching.graph.pairs import ranges
from nscaching.models import Side

#: Attributes of entities that are looked at together.
_BLOCK = 1 << 20


class Telling(NamedTuple):
    """An attribute of an entity that tells much about whether it stands in a position."""

    side: Side  #: where entities with the attribute stand in its facts
    row: int  #: the pair of those facts among the graph's rows of that side, or one after them
    others: int  #: other entities that have the attribute
    standing: int  #: of these, those that stand in the position
    expected: float  #: how many would, if they did as often as all entities that stand as they do


class Attributes:
    """The attributes of a graph's entities: from its training triples, or from all it knows."""

    def __init__(self, graph: KnowledgeGraph, *, whole: bool = False) -> None:
        others = np.concatenate([graph.split(split) for split in SPLITS[1:]])
        others = others if whole else others[:0]
        parts = [_numbered(graph.rows[side], others, side) for side in Side]
        relations, sizes, entities, attributes = zip(*parts, strict=True)
        #: Entities that have each attribute, and the position in which they stand by it.
        self._sizes = np.concatenate(sizes)
        self._first_of_tails = len(sizes[0])
        self._places = np.concatenate([relations[0], relations[1] + graph.num_relations])
        entity = np.concatenate(entities)
        attribute = np.concatenate([attributes[0], attributes[1] + np.int32(len(sizes[0]))])
        # By entity: attributes; where an entity begins.
        self._attribute = attribute[np.argsort(entity, kind="stable")]
        count = np.bincount(entity, minlength=graph.num_entities)
        self._from = np.concatenate([[0], np.cumsum(count)])

    @classmethod
    def of(cls, graph: KnowledgeGraph, *, whole: bool = False) -> Attributes:
        """Return the attributes of a graph, computed once."""
        kept = _KEPT.setdefault(graph, {})
        if whole not in kept:
            kept[whole] = cls(graph, whole=whole)
        return kept[whole]

    def alike(self, positions: Positions, side: Side, relation: int, entities: Longs) -> Floats:
        """Return whether those with the same attributes stand in a position; (n,) -> (n,).

        For each attribute: the log of how many other entities with it stand there, divided by how
        many would if they stood there as often as all entities in the attribute's position do; one
        is added to both numbers. Of this log the mean over attributes is taken, weighted by what
        each tells (the deviance of a Poisson count). 0 if attributes tell nothing. Attributes of
        the position itself are left out.
        """
        at = positions.place(side, relation), positions.shares(side, relation)
        standing = self._standing(positions.entities_at(side, relation))
        found = np.zeros(len(entities))
        ends = np.cumsum(self._from[entities + 1] - self._from[entities])
        blocks = np.flatnonzero(np.diff(ends // _BLOCK, prepend=0))
        inside = positions.seen(side, relation, entities)
        for first, last in zip([0, *blocks], [*blocks, len(entities)], strict=True):
            some = entities[first:last]
            owner, attribute = self._lines(some)
            stand = standing[attribute] - inside[first:last][owner] + 1
            log, told, _ = self._told(attribute, stand, *at)
            total = np.bincount(owner, told, minlength=len(some))
            found[first:last] = np.bincount(owner, told * log, minlength=len(some)) / (total + 1)
        return found

    def telling(
        self, positions: Positions, side: Side, relation: int, entity: int
    ) -> Telling | None:
        """Return the attribute of an entity that tells most about a position, if it has any."""
        one = np.array([entity])
        attribute = self._lines(one)[1]
        if not len(attribute):
            return None
        standing = self._standing(positions.entities_at(side, relation))[attribute]
        standing = standing - positions.seen(side, relation, one)
        at = positions.place(side, relation), positions.shares(side, relation)
        _, told, expected = self._told(attribute, standing + 1, *at)
        best = int(np.argmax(told))
        number = int(attribute[best])
        stands = Side.HEAD if number < self._first_of_tails else Side.TAIL
        return Telling(
            stands,
            number - (self._first_of_tails if stands is Side.TAIL else 0),
            int(self._sizes[number]) - 1,
            int(standing[best]),
            float(expected[best]) - 1,
        )

    def _standing(self, here: Ids) -> Ids:
        """Return how many of some entities have each attribute."""
        standing = np.zeros(len(self._sizes), dtype=np.int32)
        np.add.at(standing, self._lines(here)[1], np.int32(1))  # of another type it is slow
        return standing

    def _told(
        self, attribute: Ids, stand: Integers, place: int, share: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Return for attributes the log of found by expected, what it tells, and the expected.

        ``stand`` entities that have it stand in the position; one is added to both numbers.
        """
        there = self._places[attribute]
        expected = (self._sizes[attribute] - 1) * share[there] + 1
        log = np.log(stand / expected)
        return log, np.where(there == place, 0, stand * log - stand + expected), expected

    def _lines(self, entities: Integers) -> tuple[Longs, Ids]:
        """Return the attributes of entities, and whose each is; (n,) -> (m,), (m,)."""
        start = self._from[entities]
        owner, line = ranges(start, self._from[np.asarray(entities) + 1] - start)
        return owner, self._attribute[line]


def _numbered(pairs: PairRows, others: Ids, side: Side) -> tuple[Ids, Longs, Longs, Ids]:
    """Number the attributes of one side: the pairs of training and those of other triples; (n, 3).

    Returns the relation and the size of each attribute, and entities with their attributes.
    """
    asked = others[:, [1, side.other.column]]
    row = pairs.find(asked[:, 1], asked[:, 0])
    new, number = np.unique(asked[row < 0], axis=0, return_inverse=True)
    row[row < 0] = len(pairs) + number.reshape(-1)
    sizes = np.diff(pairs.offsets)
    of_training = np.repeat(np.arange(len(pairs), dtype=np.int32), sizes)
    sizes = np.append(sizes, np.zeros(len(new), dtype=np.int64))
    np.add.at(sizes, row, 1)
    return (
        np.append(pairs.relation, new[:, 0]),
        sizes,
        np.append(pairs.answers, others[:, side.column]),
        np.append(of_training, row.astype(np.int32)),
    )


_KEPT: WeakKeyDictionary[KnowledgeGraph, dict[bool, Attributes]] = WeakKeyDictionary()
