"""Negatives of the facts of a split, for data sets that come without any: fixed by a seed.

They are made like the negatives that FB13 comes with (Socher et al. 2013), which the paper's source
(Wang et al. 2014) follows: the tail is replaced by another entity that the relation has as a tail
somewhere in the data set. "Lyon, in country, Spain" is such a negative; "Lyon, in country, Lyon"
would be too easy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph, PairRows, pair_rows
from nscaching.graph.names import SPLITS, Bools, Floats, Ids, Integers, Longs
from nscaching.graph.pairs import SideName, contained

#: Which entity of a fact a negative may replace.
REPLACED = ("tail", "head", "either")

_COLUMNS: dict[SideName, int] = {"head": 0, "tail": 2}


@dataclass(frozen=True)
class Drawing:
    """How negatives are drawn: the seed, and the side that is replaced."""

    seed: int = 0
    replaced: str = "tail"  #: ``"tail"``, ``"head"`` or ``"either"``, a fair coin per fact

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UserError(f"The seed must be at least 0, not {self.seed}.")
        if self.replaced not in REPLACED:
            raise UserError(
                f"The side replaced is one of {', '.join(REPLACED)}, not '{self.replaced}'."
            )


@dataclass(frozen=True)
class SeededNegatives:
    """Negatives of a split, and for how many facts the rule could not be kept."""

    triples: Ids  #: (n, 3), in the order of the split; some facts have none
    out_of_place: int  #: negatives whose entity the relation never has on that side
    missing: int  #: facts for which every other entity makes a known fact


def seeded_negatives(
    graph: KnowledgeGraph, split: str, drawing: Drawing | None = None
) -> SeededNegatives:
    """Draw one negative per fact of a split, the same for the same graph and drawing.

    The entity is uniform among those that the relation has on that side, in any split, and that
    make no known fact of any split. Where there is none, the other side is replaced. Where that
    fails too, any entity that makes no known fact is taken; a fact without such an entity
    gets no negative.
    """
    drawing = drawing or Drawing()
    facts = graph.split(split)
    everything = np.concatenate([graph.split(name) for name in SPLITS])
    first = sum(len(graph.split(name)) for name in SPLITS[: SPLITS.index(split)])
    here = slice(first, first + len(facts))
    pools = [_among_seen(graph, everything, side) for side in _COLUMNS]
    pools += [_among_all(graph, pool) for pool in pools]
    random = np.random.default_rng([drawing.seed, SPLITS.index(split)])
    share, coin = random.random(len(facts)), random.integers(2, size=len(facts))
    tail = np.full_like(coin, drawing.replaced == "tail")
    wanted = coin if drawing.replaced == "either" else tail

    free = np.stack([pool.free[pool.pairs.of_triple[here]] for pool in pools])
    order = np.stack([wanted, 1 - wanted, 2 + wanted, 3 - wanted])  # pools, the best first
    possible = np.take_along_axis(free, order, axis=0) > 0
    chosen = np.take_along_axis(order, possible.argmax(axis=0)[None], axis=0)[0]
    found = possible.any(axis=0)

    negatives = facts.copy()
    for number, pool in enumerate(pools):
        mine = np.flatnonzero(found & (chosen == number))
        rows = pool.pairs.of_triple[here][mine].astype(np.int64)
        negatives[mine, pool.column] = pool.draw(rows, share[mine])
    return SeededNegatives(
        triples=np.ascontiguousarray(negatives[found]),
        out_of_place=int((found & (chosen >= 2)).sum()),
        missing=int((~found).sum()),
    )


@dataclass(frozen=True)
class _Pool:
    """The entities that may replace one side of a fact, relation by relation.

    Relation r has ``size[r]`` of ``entities``, from ``start[r]`` on, ascending. ``places`` is the
    place in its relation's pool of every answer of ``pairs``: known positives, never drawn.
    """

    pairs: PairRows
    column: int
    entities: Longs
    start: Longs
    size: Longs
    places: Longs

    @cached_property
    def free(self) -> Longs:
        """How many entities of the pool complete a pair to no known fact; shape: (rows,)."""
        return self.size[self.pairs.relation] - np.diff(self.pairs.offsets)

    def draw(self, rows: Longs, share: Floats) -> Longs:
        """Return one free entity per row: the one at this share, in [0, 1), of the free ones."""
        nth = (share * self.free[rows]).astype(np.int64)
        # An answer comes before the nth free entity if at most n free ones come before it.
        place = np.searchsorted(self._keys, rows * self._width + nth, side="right")
        answers_before = place - self.pairs.offsets[rows]
        return self.entities[self.start[self.pairs.relation[rows]] + nth + answers_before]

    @property
    def _width(self) -> int:
        return int(self.size.max(initial=0)) + 1

    @cached_property
    def _keys(self) -> Longs:
        """For every answer its row and the number of free entities before it, as one number."""
        row = np.repeat(np.arange(len(self.pairs)), np.diff(self.pairs.offsets))
        free_before = self.places - (np.arange(len(row)) - self.pairs.offsets[row])
        return row * self._width + free_before


def _among_seen(graph: KnowledgeGraph, facts: Ids, side: SideName) -> _Pool:
    """Return the entities that a relation has on this side of its facts."""
    pairs = pair_rows(facts, side, graph.num_entities, graph.num_relations)
    relation = np.repeat(pairs.relation, np.diff(pairs.offsets)).astype(np.int64)
    used = relation * graph.num_entities + pairs.answers
    seen = np.unique(used)
    start = np.searchsorted(seen, np.arange(graph.num_relations) * graph.num_entities)
    return _Pool(
        pairs,
        _COLUMNS[side],
        entities=seen % graph.num_entities,
        start=start,
        size=np.diff(start, append=len(seen)),
        places=np.searchsorted(seen, used) - start[relation],
    )


def _among_all(graph: KnowledgeGraph, seen: _Pool) -> _Pool:
    """Return all entities, for the side of another pool."""
    return replace(
        seen,
        entities=np.arange(graph.num_entities),
        start=np.zeros(graph.num_relations, dtype=np.int64),
        size=np.full(graph.num_relations, graph.num_entities),
        places=seen.pairs.answers.astype(np.int64),
    )


# Claims -------------------------------------------------------------------------------------------


def claims_of(
    graph: KnowledgeGraph, facts: Integers, *, seed: int = 0
) -> tuple[Integers, Bools, Bools]:
    """Return facts with a negative of the right type and one of any type for each.

    Either side of a fact is replaced, by a fair coin. Returns triples (n, 3), whether each is true,
    and whether each is a negative of any type. Negatives that the graph holds as facts are left
    out.
    """
    random = np.random.default_rng([seed, 1])
    typed, free = facts.copy(), facts.copy()
    for negatives in (typed, free):
        column = np.where(random.random(len(facts)) < 0.5, 0, 2)
        drawn: Integers = random.integers(graph.num_entities, size=len(facts))
        if negatives is typed:
            drawn = _of_right_type(graph, facts[:, 1], column, random.random(len(facts)), drawn)
        negatives[np.arange(len(facts)), column] = drawn
    made = np.concatenate([typed, free])
    held_out = np.concatenate([graph.split(split) for split in SPLITS[1:]])
    new = ~contained(made, held_out, graph.num_entities, graph.num_relations)
    new &= ~graph.rows.tail.contains(*made.T)
    kept = np.concatenate([np.ones(len(facts), dtype=bool), new])
    kind = np.repeat(["fact", "typed", "any"], len(facts))[kept]
    return np.concatenate([facts, made[new]]), kind == "fact", kind == "any"


def _of_right_type(
    graph: KnowledgeGraph, relations: Integers, column: Integers, share: Floats, otherwise: Integers
) -> Integers:
    """Draw, for each relation and column, an entity that stands there in training."""
    drawn, asked = otherwise.copy(), relations.astype(np.int32)
    for place, pairs in ((0, graph.rows.tail), (2, graph.rows.head)):
        first = np.searchsorted(pairs.relation, asked, side="left")
        count = np.searchsorted(pairs.relation, asked, side="right") - first
        mine = (column == place) & (count > 0)
        drawn[mine] = pairs.anchor[first[mine] + (share[mine] * count[mine]).astype(np.int64)]
    return drawn
