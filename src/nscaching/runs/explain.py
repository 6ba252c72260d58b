"""What speaks for a fact and against it, from the training triples.

Paths of one and two relations between head and tail, each with how often such a path goes with
the relation; entities like the head, or like the tail, that have the fact. All of it comes from
sparse matrices of the training triples: no model is asked.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy import sparse

from nscaching.evaluation.attributes import Attributes
from nscaching.evaluation.positions import Positions
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import Longs
from nscaching.models import Side
from nscaching.runs.predictions import Named, Prediction

#: Bytes of the matrices of relations that are kept.
_KEPT_BYTES = 1 << 28
#: Heads of a relation whose paths are counted; of a relation with more, so many spread evenly.
_HEADS = 300
#: Kinds of paths that are counted per fact, those through the fewest hubs first.
_KINDS = 40
#: Path ends that counting one kind may touch; a kind through larger hubs says little.
_MOST_ENDS = 300_000
#: A fact that so many others share tells something where at least half of them have the relation,
#: and so many times as many as expected; or where so many are expected, and so many times fewer
#: have it.
_LEAST_OTHERS, _MORE, _LEAST_EXPECTED, _FEWER = 5, 1.5, 3, 3
#: Similarities below this are not worth showing.
_LEAST_SIMILARITY = 0.02

Step = tuple[str, str]


@dataclass(frozen=True)
class PathReason:
    """A path from head to tail, and how often such a path goes with the relation."""

    steps: tuple[Step, ...]  #: (relation, "->" or "<-"), one or two
    via: str | None  #: an entity in the middle of a path of two
    count_via: int  #: how many such entities there are
    support: int  #: pairs with such a path whose first entity has the relation at all
    confirmed: int  #: of these, pairs that have the relation
    ends: tuple[str, str, str]  #: head, relation and tail that are explained

    @property
    def share(self) -> float:
        """How often such a path goes with the relation."""
        return self.confirmed / self.support if self.support else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the ends as plain values."""
        plain = {"path": self.path(), **asdict(self), "share": self.share}
        del plain["ends"]
        return {**plain, "steps": [list(step) for step in self.steps]}

    def path(self) -> str:
        """Return the path as text, such as ``Lyon -in country-> France -speaks-> French``."""
        head, _, tail = self.ends
        stops = [head, *([self.via] if self.via is not None else []), tail]
        text = stops[0]
        for (relation, direction), stop in zip(self.steps, stops[1:], strict=True):
            text += f" -{relation}-> {stop}" if direction == "->" else f" <-{relation}- {stop}"
        return text

    def sentence(self) -> str:
        """Return the path and its count as a sentence."""
        others = f" (and {self.count_via - 1:,} more like it)" if self.count_via > 1 else ""
        return (
            f"{self.path()}{others}: of {self.support:,} such pairs, {self.confirmed:,} have "
            f"'{self.ends[1]}' ({self.share:.0%})."
        )


@dataclass(frozen=True)
class SimilarEntity:
    """An entity like the head or the tail that has the fact in its place."""

    entity: str
    similarity: float  #: cosine of their facts, rare ones counting more
    fact: Named
    side: str  #: "head" or "tail": which side it stands in for

    def sentence(self) -> str:
        """Return it as a sentence."""
        return f"{self.entity} is similar ({self.similarity:.2f}): {' · '.join(self.fact)}."


@dataclass(frozen=True)
class SharedFact:
    """A fact that entities share with the head or the tail, and how many of them have the relation.

    Where nearly none has it, this one hardly has it either, and nothing is missing.
    """

    fact: Named  #: with "?" in place of those that share it
    others: int  #: entities that share it, but for the head or the tail itself
    standing: int  #: of these, heads (or tails) of the relation that is explained
    expected: float  #: how many would be if the fact told nothing
    side: str  #: "head" or "tail": where they stand in the relation
    relation: str

    @property
    def speaks_for(self) -> bool:
        """Whether it speaks for the relation."""
        return self.standing > self.expected

    @property
    def counted(self) -> str:
        """How many of the others are heads (or tails), as text."""
        count = "none" if self.standing == 0 else f"{self.standing:,}"
        stands = f"is a {self.side}" if self.standing < 2 else f"are {self.side}s"
        return f"{count} {stands} of"

    def sentence(self) -> str:
        """Return it as a sentence."""
        return (
            f"of {self.others:,} others with '{' · '.join(self.fact)}', {self.counted} "
            f"'{self.relation}'; {self.expected:,.0f} would be expected."
        )


@dataclass(frozen=True)
class Explanation:
    """What speaks for a fact and against it."""

    prediction: Prediction
    paths: tuple[PathReason, ...]  #: the most telling first
    similar: tuple[SimilarEntity, ...]  #: the most similar first
    shared: tuple[SharedFact, ...] = ()  #: of the head, of the tail, where one tells much

    @property
    def contradicts(self) -> Named | None:
        """A fact of the graph that cannot hold beside this one."""
        return self.prediction.contradicts

    def sentences(self) -> list[str]:
        """Return what speaks for the fact, then what speaks against it, as plain text."""
        found = [f"For: {path.sentence()}" for path in self.paths]
        found += [f"For: {entity.sentence()}" for entity in self.similar]
        found += [f"For: {fact.sentence()}" for fact in self.shared if fact.speaks_for]
        found += [f"Against: {fact.sentence()}" for fact in self.shared if not fact.speaks_for]
        found += [f"Against: {flag}." for flag in self.prediction.flags]
        if not self.paths and not self.similar:
            found.append(
                "Against: no path of one or two relations leads from head to tail, and no similar "
                "entity has the fact."
            )
        return found

    @property
    def evidence(self) -> str:
        """All sentences as one text, for the cell of a table."""
        return "; ".join(sentence.rstrip(".") for sentence in self.sentences())

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "prediction": self.prediction.as_dict(),
            "paths": [reason.as_dict() for reason in self.paths],
            "similar": [{**asdict(reason), "fact": list(reason.fact)} for reason in self.similar],
            "shared": [{**asdict(reason), "fact": list(reason.fact)} for reason in self.shared],
            "contradicts": None if self.contradicts is None else list(self.contradicts),
            "sentences": self.sentences(),
        }

    def __str__(self) -> str:
        return "\n".join([repr(self.prediction), *(f"  {line}" for line in self.sentences())])

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in self.sentences())
        return f"<p>{html.escape(repr(self.prediction))}</p><ul>{lines}</ul>"


class Explainer:
    """Explains facts of one graph; what it has counted once it keeps."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self._graph = graph
        heads, relations, tails = graph.train.astype(np.int64).T
        # An edge has a kind: twice its relation, and one more when it is walked from tail to head.
        start = np.concatenate([heads, tails])
        self._kind = np.concatenate([2 * relations, 2 * relations + 1])
        self._end = np.concatenate([tails, heads])
        order = np.lexsort((self._end, self._kind, start))
        self._kind, self._end = self._kind[order], self._end[order]
        self._from = np.searchsorted(start[order], np.arange(graph.num_entities + 1))
        self._matrices: dict[int, sparse.csr_matrix] = {}
        self._matrix_bytes = 0
        self._heads, self._pairs = cache(self._heads_of), cache(self._count)

    def explain(self, prediction: Prediction, ids: Sequence[int], k: int) -> Explanation:
        """Return at most k paths and k similar entities for a triple of ids."""
        head, relation, tail = ids
        paths = self._paths(head, relation, tail, k, known=prediction.split == "train")
        similar, shared = self._similar(head, relation, tail, k), self._shared(head, relation, tail)
        return Explanation(prediction, paths, similar, shared)

    # Paths ---------------------------------------------------------------------------------------

    def _paths(
        self, head: int, relation: int, tail: int, k: int, known: bool
    ) -> tuple[PathReason, ...]:
        found: list[tuple[float, PathReason]] = []
        kinds, names = self._kinds_between(head, relation, tail), self._graph.relations
        for kind, (middle, count) in list(kinds.items())[:_KINDS]:
            confirmed, support = self._pairs(relation, kind)
            if known and head in self._heads(relation):  # the fact is no reason for itself
                confirmed, support = confirmed - 1, support - 1
            if confirmed <= 0 or support <= 0:
                continue
            reason = PathReason(
                tuple((names[part // 2], "<-" if part % 2 else "->") for part in kind),
                None if middle is None else self._graph.entities[middle],
                count,
                support,
                confirmed,
                self._graph.named((head, relation, tail)),
            )
            found.append((_lower_bound(confirmed, support), reason))
        found.sort(key=lambda pair: -pair[0])
        # A relation that goes both ways gives the same path twice.
        once = {
            (*(name for name, _ in reason.steps), reason.via, reason.support): reason
            for _, reason in reversed(found)
        }
        return tuple(reason for _, reason in found if reason in once.values())[:k]

    def _kinds_between(
        self, head: int, relation: int, tail: int
    ) -> dict[tuple[int, ...], tuple[int | None, int]]:
        """Return the kinds of paths from head to tail, each with a middle and their number."""
        found: dict[tuple[int, ...], tuple[int | None, int]] = {}
        kinds, ends = self._edges(head)
        for kind in kinds[ends == tail].tolist():
            if kind != 2 * relation:
                found[(kind,)] = (None, 1)
        back_kinds, back_ends = self._edges(tail)
        middles = np.intersect1d(ends, back_ends)
        middles = middles[(middles != head) & (middles != tail)]
        degree = np.diff(self._from)
        for middle in middles[np.argsort(degree[middles], kind="stable")].tolist():
            for first in kinds[ends == middle].tolist():
                for last in back_kinds[back_ends == middle].tolist():
                    kind = (first, last ^ 1)  # walked the other way round
                    seen, count = found.get(kind, (middle, 0))
                    found[kind] = (seen, count + 1)
        return found

    def _edges(self, entity: int) -> tuple[Longs, Longs]:
        part = slice(self._from[entity], self._from[entity + 1])
        return self._kind[part], self._end[part]

    def _count(self, relation: int, kind: tuple[int, ...]) -> tuple[int, int]:
        """Return how many pairs joined by such a path have the relation, and how many there are."""
        rows = self._heads(relation)
        joined = self._matrix(kind[0])[rows]
        if len(kind) == 2:
            last = self._matrix(kind[1])
            if int((joined @ np.diff(last.indptr)).sum()) > _MOST_ENDS:
                return 0, 0
            joined = joined @ last
        joined.data = np.ones_like(joined.data)
        joined = joined.tocsr()
        confirmed = joined.multiply(self._matrix(2 * relation)[rows]).nnz
        loops = 0
        if relation not in self._graph.relations_with_loops:
            own = sparse.csr_matrix(
                (np.ones(len(rows)), (np.arange(len(rows)), rows)), shape=joined.shape
            )
            loops = joined.multiply(own).nnz
        return int(confirmed), int(joined.nnz - loops)

    def _heads_of(self, relation: int) -> Longs:
        """Return the heads of a relation, or some of them spread evenly."""
        heads = np.flatnonzero(np.diff(self._matrix(2 * relation).indptr))
        step = np.linspace(0, len(heads) - 1, min(len(heads), _HEADS)).round().astype(np.int64)
        return np.asarray(heads[step])

    def _matrix(self, kind: int) -> sparse.csr_matrix:
        """Return where edges of a kind lead, (entities, entities); some are kept."""
        if kind not in self._matrices:
            made = self._matrix_of(kind)
            size = made.indptr.nbytes + made.indices.nbytes + made.data.nbytes
            if self._matrix_bytes + size > _KEPT_BYTES:
                self._matrices.clear()
                self._matrix_bytes = 0
            self._matrices[kind] = made
            self._matrix_bytes += size
        return self._matrices[kind]

    def _matrix_of(self, kind: int) -> sparse.csr_matrix:
        triples = self._graph.train[self._graph.train[:, 1] == kind // 2].astype(np.int64)
        ends = (triples[:, 2], triples[:, 0]) if kind % 2 else (triples[:, 0], triples[:, 2])
        shape = (self._graph.num_entities,) * 2
        return sparse.csr_matrix((np.ones(len(triples), dtype=np.float32), ends), shape=shape)

    # Facts that others share ----------------------------------------------------------------------

    def _shared(self, head: int, relation: int, tail: int) -> tuple[SharedFact, ...]:
        """Return what most tells whether head and tail have the relation, where it tells much."""
        graph, found = self._graph, []
        positions, attributes = Positions.of(graph), Attributes.of(graph)
        for side, entity in ((Side.HEAD, head), (Side.TAIL, tail)):
            telling = attributes.telling(positions, side, relation, entity)
            if telling is None or telling.others < _LEAST_OTHERS:
                continue
            most = telling.standing >= max(telling.others / 2, _MORE * telling.expected)
            few = telling.expected >= max(_LEAST_EXPECTED, _FEWER * telling.standing)
            if not (most or few):
                continue
            pairs = graph.rows[telling.side]
            known = graph.entities[int(pairs.anchor[telling.row])]
            name = graph.relations[int(pairs.relation[telling.row])]
            fact = ("?", name, known) if telling.side is Side.HEAD else (known, name, "?")
            counts = telling.others, telling.standing, telling.expected
            found.append(SharedFact(fact, *counts, side.word, graph.relations[relation]))
        return tuple(found)

    # Similar entities ----------------------------------------------------------------------------

    def _similar(self, head: int, relation: int, tail: int, k: int) -> tuple[SimilarEntity, ...]:
        found = []
        for side, entity, anchor, kind in (
            ("head", head, tail, 2 * relation + 1),
            ("tail", tail, head, 2 * relation),
        ):
            kinds, ends = self._edges(anchor)
            others = ends[(kinds == kind) & (ends != entity)]
            for other, value in self._alike(entity, others, kind ^ 1, anchor)[:k]:
                fact = (other, relation, tail) if side == "head" else (head, relation, other)
                name = self._graph.entities[other]
                found.append(SimilarEntity(name, value, self._graph.named(fact), side))
        found.sort(key=lambda reason: -reason.similarity)
        return tuple(found[:k])

    def _alike(self, entity: int, others: Longs, kind: int, anchor: int) -> list[tuple[int, float]]:
        """Return which of the others have most facts in common with an entity, the best first.

        The fact that is explained, an edge of this kind to the anchor, does not count.
        """
        facts, keys = self._facts
        row, table = facts[[entity]], facts[others]
        shared = (table @ row.T).toarray()[:, 0]
        column = kind * self._graph.num_entities + anchor
        place = np.searchsorted(keys, column)
        if place < len(keys) and keys[place] == column:
            shared = shared - float(row[0, place]) * table[:, [place]].toarray()[:, 0]
        order = np.lexsort((others, -shared))
        return [(int(others[i]), float(shared[i])) for i in order if shared[i] > _LEAST_SIMILARITY]

    @cached_property
    def _facts(self) -> tuple[sparse.csr_matrix, Longs]:
        """One row per entity, of length 1: its edges, rare ones weighing more; what they are."""
        edges = self._kind * self._graph.num_entities + self._end
        keys, column = np.unique(edges, return_inverse=True)
        rarity = np.log(self._graph.num_entities / np.bincount(column))
        shape = (self._graph.num_entities, len(keys))
        table = sparse.csr_matrix((rarity[column], column, self._from), shape=shape)
        length = np.sqrt(np.asarray(table.multiply(table).sum(axis=1))[:, 0])
        table.data /= np.repeat(np.maximum(length, 1e-9), np.diff(table.indptr))
        return table, keys


def _lower_bound(confirmed: int, support: int) -> float:
    """Return the lower end of Wilson's interval: few pairs prove little."""
    z, share = 1.64, confirmed / support
    middle = share + z * z / (2 * support)
    spread = z * math.sqrt(share * (1 - share) / support + z * z / (4 * support * support))
    return (middle - spread) / (1 + z * z / support)
