"""What speaks for a triple, as numbers that compare across questions.

Raw scores do not: a question (h, r, ?) may give all of its candidates high scores and another none.
So a score is taken relative to its question, in two ways that suit logits and distances alike: the
log-softmax over all entities, at the temperature that makes valid most likely, and the distance
from the mean in standard deviations. Beside it stands what the training triples say of the two
entities: were they seen in their positions, how often, do they fit there, and does a relation with
one answer have it already.

A *position* is a relation and a side of it, such as "tail of speaks". Entities of one type stand in
the same positions, so that positions serve as types in a graph that names none: an entity *fits* a
position if most of the entities that share its other positions stand in it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.evaluation.ranking import DEFAULT_MEMORY_MB, chunk_rows, known_answers
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import SPLITS, Bools, Floats, Integers, Longs
from nscaching.graph.pairs import pair_keys, ranges
from nscaching.models import EmbeddingModel, Side

#: A relation has one answer where at least this share of its questions has (see ``single``).
ONE_ANSWER = 0.95
#: The least fit of an entity that was never seen in a position, for it to be plausible there.
PLAUSIBLE = 0.05
#: Added to every share before its logarithm is taken.
_FLOOR = 1e-3
#: Bytes of columns that are kept once they have been computed.
_KEPT_BYTES = 1 << 27


@dataclass(frozen=True)
class Column:
    """All entities in one position."""

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
        sizes = graph.num_entities, graph.num_relations
        self.num_entities, self.num_relations = sizes
        # One line per entity and position, sorted by both: its entity, position and facts.
        places = 2 * graph.num_relations
        lines, facts = [], []
        for pairs, first in ((graph.rows.tail, 0), (graph.rows.head, sizes[1])):
            lines.append(pair_keys(pairs.anchor, pairs.relation, places) + first)
            facts.append(np.diff(pairs.offsets))
        for split in SPLITS[1:] if whole else ():
            heads, relations, tails = graph.split(split).T
            lines += [pair_keys(heads, relations, places)]
            lines += [pair_keys(tails, relations, places) + sizes[1]]
            facts += 2 * [np.ones(len(heads), dtype=np.int64)]
        keys = np.concatenate(lines)
        order = np.argsort(keys)
        keys = keys[order]
        first_of = np.flatnonzero(np.diff(keys, prepend=-1))
        self._keys = keys[first_of]
        counts = np.add.reduceat(np.concatenate(facts)[order], first_of) if len(keys) else keys
        self._entity, self._place = np.divmod(self._keys, max(1, places))
        self._counts = counts.astype(np.float32)
        self._from = np.searchsorted(self._entity, np.arange(sizes[0] + 1))
        self._entities_at = np.bincount(self._place, minlength=places)
        self._positions_of = np.diff(self._from)  #: distinct positions of each entity
        by_place = np.argsort(self._place, kind="stable")
        ends = np.cumsum(self._entities_at)
        self._lines_at = np.split(by_place, ends[:-1]) if places else []
        #: Share of the questions (?, r, t), and of (h, r, ?), with one answer, drawn towards one
        #: half where they are few; (2, relations). An entity asks from where it stands.
        single = np.bincount(self._place, weights=counts == 1, minlength=places) + 1
        self.single = (single / (self._entities_at + 2)).reshape(2, -1)[::-1]
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

    def rows(self, side: Side, relation: int, entities: Integers) -> Column:
        """Return some entities in the position ``side`` of a relation, at the cost of those."""
        place = int(side) * self.num_relations + relation
        if place in self._columns:
            whole = self._columns[place]
            return Column(whole.counts[entities], whole.fit[entities])
        return self._compute(place, np.asarray(entities, dtype=np.int64))

    def entities_at(self, side: Side, relation: int) -> Longs:
        """Return the entities that were seen in the position ``side`` of a relation, ascending."""
        return self._entity[self._lines_at[int(side) * self.num_relations + relation]]

    def _compute(self, place: int, entities: Longs | None = None) -> Column:
        """Return a column, or its rows of some entities."""
        lines = self._lines_at[place]
        here = self._entity[lines]
        # How many of the entities here stand in each other position, as a share of those there.
        _, theirs = ranges(self._from[here], self._positions_of[here])
        together = np.bincount(self._place[theirs], minlength=len(self._entities_at))
        logs = np.log(together / np.maximum(self._entities_at, 1) + _FLOOR)
        if entities is None:
            counts = np.zeros(self.num_entities, dtype=np.float32)
            counts[here] = self._counts[lines]
            total = np.bincount(self._entity, logs[self._place], minlength=self.num_entities)
            others = self._positions_of - (counts > 0)
        else:
            keys = entities * len(self._entities_at) + place
            line = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            counts = np.where(self._keys[line] == keys, self._counts[line], 0).astype(np.float32)
            owner, own = ranges(self._from[entities], self._positions_of[entities])
            total = np.bincount(owner, logs[self._place[own]], minlength=len(entities))
            others = self._positions_of[entities] - (counts > 0)
        alone = np.log(len(here) / max(1, self.num_entities) + _FLOOR)
        mean = (total - np.log(1 + _FLOOR) * (counts > 0)) / np.maximum(others, 1)
        return Column(counts, np.where(others > 0, mean, alone).astype(np.float32))

    def has_one_answer(self, side: Side, relation: int) -> bool:
        """Tell whether questions for this side of a relation have one answer."""
        return bool(self.single[side, relation] >= ONE_ANSWER)


_KEPT: WeakKeyDictionary[KnowledgeGraph, dict[bool, Positions]] = WeakKeyDictionary()


#: The numbers for one question and a candidate: two of the score, four of each entity.
SCORE_FEATURES = ("log softmax", "deviations")
ENTITY_FEATURES = ("seen", "facts", "fit", "taken")
#: Valid questions that decide the temperature, at most and at least; fewer where entities are many.
_TEMPERATURE_QUESTIONS, _FEWEST_QUESTIONS, _SCORES = 256, 32, 3e7
#: A relation's share of single answers is raised to this power before it speaks against a second.
_SHARPNESS = 8
#: Bytes of the scores that a CPU works on at once, and the fewest questions: each block reads the
#: whole entity table.
_CACHE_BYTES, _FEWEST_ROWS = 1 << 23, 24

Features = Floats


@dataclass(frozen=True)
class Questions:
    """Scores of all entities for questions of one side and one relation, and what they are worth.

    ``log softmax = temperature * scores - normaliser``,
    ``deviations = (scores - mean) / spread``.
    """

    scores: Tensor  #: (b, entities)
    normaliser: Tensor  #: (b,)
    mean: Tensor  #: (b,)
    spread: Tensor  #: (b,)
    rows: Tensor  #: (b,) which of the questions that were asked these are

    def of_scores(self, temperature: float, rows: Tensor, scores: Tensor) -> Tensor:
        """Return the two features of scores to the questions ``rows``; (n,), (n,) -> (n, 2)."""
        softmax = temperature * scores - self.normaliser[rows]
        deviations = (scores - self.mean[rows]) / self.spread[rows]
        return torch.stack([softmax, deviations], dim=1)


class Evidence:
    """Features of triples under a model; the graph's training triples are taken as known."""

    def __init__(
        self,
        model: EmbeddingModel,
        graph: KnowledgeGraph,
        temperature: float | None = None,
        memory_mb: int = DEFAULT_MEMORY_MB,
    ) -> None:
        self.model, self.graph, self.memory_mb = model, graph, memory_mb
        self.positions = Positions.of(graph)
        self.known = known_answers(graph, graph.train[:0])
        #: What scores are multiplied with before the softmax.
        self.temperature = 1.0 if temperature is None else temperature
        if temperature is None:
            self.temperature = self._best_temperature()

    def chunk(self) -> int:
        """Return how many questions are scored at once; on a CPU no more than its caches hold."""
        rows = chunk_rows(self.graph.num_entities, self.memory_mb)
        if self.model.device.type != "cpu":
            return rows
        return min(rows, max(_FEWEST_ROWS, _CACHE_BYTES // (4 * max(1, self.graph.num_entities))))

    @torch.no_grad()
    def ask(
        self,
        side: Side,
        anchors: Integers,
        relations: Integers,
        worth: Callable[[Tensor], Tensor] | None = None,
    ) -> Questions:
        """Score all entities for each question; training answers do not count. (b,), (b,).

        ``worth`` gets the highest deviation of each question, (b,), and tells which questions are
        to be kept, as bools; most of the work is spared for the others.
        """
        device = self.model.device
        scores = self.model.score_all(
            side,
            torch.as_tensor(anchors, device=device).long(),
            torch.as_tensor(relations, device=device).long(),
        ).float()
        mean = scores.mean(dim=1)
        if not bool(mean.isfinite().all()):  # a score that is no number is the worst
            scores = torch.nan_to_num(scores, nan=-1e30, posinf=1e30, neginf=-1e30)
            mean = scores.mean(dim=1)
        spread = torch.linalg.vector_norm(scores - mean[:, None], dim=1)
        spread /= max(1, scores.shape[1] - 1) ** 0.5
        spread.clamp_(min=1e-6)
        row, known = self.known_answers(side, anchors, relations)
        kept = scores[row, known]
        scores[row, known] = -torch.inf
        rows = torch.arange(len(scores), device=device)
        if worth is not None:
            rows = torch.nonzero(worth((scores.amax(dim=1) - mean) / spread))[:, 0]
            if len(rows) < len(scores):
                place = torch.full_like(mean, -1, dtype=torch.int64)
                place[rows] = torch.arange(len(rows), device=device)
                still = place[row] >= 0
                row, known, kept = place[row[still]], known[still], kept[still]
                scores, mean, spread = scores[rows], mean[rows], spread[rows]
        normaliser = torch.logsumexp(self.temperature * scores, dim=1)
        scores[row, known] = kept
        return Questions(scores, normaliser, mean, spread, rows)

    @cached_property
    @torch.no_grad()
    def highest_deviations(self) -> Tensor | None:
        """A bound on how far above the mean of a question each entity can score; (entities,).

        In standard deviations of that question. Where scores are dot products it is the Mahalanobis
        norm of the entity's vector, by the inequality of Cauchy and Schwarz; else None.
        """
        model, (count, width) = self.model, self.model.entity.shape
        size = max(1, (1 << 24) // width)
        sums = [rows.double().sum(dim=0) for _, rows in model.blocks(size)]
        centre = torch.stack(sums).sum(0) / count
        if model.match.name != "dot" or not bool(centre.isfinite().all()):
            return None
        spread = centre.new_zeros(width, width)
        for _, rows in model.blocks(size):
            spread += (rows - centre).T @ (rows - centre) / max(1, count - 1)
        ridge = (1e-9 * spread.diagonal().mean() + 1e-30) * torch.eye(width).to(spread)
        inverse = torch.linalg.inv(torch.linalg.cholesky(spread + ridge))
        norms = centre.new_empty(count, dtype=torch.float32)
        for ids, rows in model.blocks(size):
            norms[ids] = torch.linalg.vector_norm((rows - centre) @ inverse.T, dim=1).float()
        return norms

    def known_answers(
        self, side: Side, anchors: Integers, relations: Integers
    ) -> tuple[Tensor, Tensor]:
        """Return the training answers of questions as (row, entity) lists."""
        row, entity = self.known[side].of(anchors, relations)
        device = self.model.device
        return torch.from_numpy(row).to(device), torch.from_numpy(entity).to(device)

    def score_features(self, triples: Integers, side: Side) -> Features:
        """Return the features of the score within the question that asks for one side; (n, 2)."""
        anchor, target = (2, 0) if side is Side.HEAD else (0, 2)
        found = np.empty((len(triples), len(SCORE_FEATURES)))
        pairs, of_triple = np.unique(triples[:, [1, anchor]], axis=0, return_inverse=True)
        of_triple = of_triple.reshape(-1)
        order = np.argsort(of_triple, kind="stable")
        chunk = self.chunk()
        for start in range(0, len(pairs), chunk):
            block = pairs[start : start + chunk]
            first, last = np.searchsorted(of_triple[order], [start, start + len(block)])
            mine = order[first:last]
            questions = self.ask(side, block[:, 1], block[:, 0])
            rows = torch.from_numpy(of_triple[mine] - start).to(self.model.device)
            targets = torch.from_numpy(triples[mine, target].astype(np.int64)).to(rows.device)
            features = questions.of_scores(self.temperature, rows, questions.scores[rows, targets])
            found[mine] = features.cpu().numpy()
        return found

    def entity_features(
        self, triples: Integers, side: Side, positions: Positions | None = None
    ) -> Features:
        """Return the features of the entity on one side of each triple; (n, 4)."""
        found = np.empty((len(triples), len(ENTITY_FEATURES)))
        column = 0 if side is Side.HEAD else 2
        for relation, mine in _groups(triples[:, 1]):
            ids = triples[mine, column]
            found[mine] = self.entity_table(side, relation, positions, ids)
        return found

    def entity_table(
        self,
        side: Side,
        relation: int,
        positions: Positions | None = None,
        entities: Integers | None = None,
    ) -> Features:
        """Return the features of all entities on one side of a relation, or of some; (n, 4).

        ``positions`` are those of the training triples, unless others are given.
        """
        positions = positions or self.positions
        if entities is None:
            position = positions.column(side, relation)
        else:
            position = positions.rows(side, relation, entities)
        # An entity that stands on this side asks the other side's question: it has answers already.
        other = Side(1 - side)
        taken = position.seen * positions.single[other, relation] ** _SHARPNESS
        columns = (position.seen, np.log1p(position.counts), position.fit, taken)
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)

    def of_answers(
        self, triples: Integers, side: Side, positions: Positions | None = None
    ) -> Features:
        """Return the features of triples as answers to the question for one side; (n, 10)."""
        other = Side(1 - side)
        parts = [
            self.score_features(triples, side),
            self.entity_features(triples, side, positions),
            self.entity_features(triples, other, positions),
        ]
        return np.concatenate(parts, axis=1)

    def of_triples(self, triples: Integers, positions: Positions | None = None) -> Features:
        """Return the features of triples, as answers to both of their questions; (n, 12)."""
        sides = (Side.TAIL, Side.HEAD)
        scores = [self.score_features(triples, side) for side in sides]
        entities = [self.entity_features(triples, side, positions) for side in sides]
        return np.concatenate([*scores, *entities], axis=1)

    def _best_temperature(self) -> float:
        """Return the temperature at which the softmax makes the valid triples most likely."""
        valid = self.graph.valid
        if len(valid) == 0:
            return 1.0
        affordable = _SCORES / max(1, self.graph.num_entities)
        most = int(np.clip(affordable, _FEWEST_QUESTIONS, _TEMPERATURE_QUESTIONS))
        some = valid[:: max(1, len(valid) // most)][:most]
        tried = np.logspace(-1.5, 1.5, 25)
        likelihood = np.zeros(len(tried))
        unit = 0.0
        for start in range(0, len(some), self.chunk()):
            block = some[start : start + self.chunk()]
            questions = self.ask(Side.TAIL, block[:, 0], block[:, 1])
            target = torch.from_numpy(block[:, 2].astype(np.int64)).to(self.model.device)
            own = questions.scores.gather(1, target.unsqueeze(1))[:, 0]
            unit = unit or 1 / max(float(questions.spread.mean()), 1e-6)
            row, known = self.known_answers(Side.TAIL, block[:, 0], block[:, 1])
            questions.scores[row, known] = -torch.inf
            for number, factor in enumerate(tried):
                scale = unit * factor
                normaliser = torch.logsumexp(scale * questions.scores, dim=1)
                likelihood[number] += float((scale * own - normaliser).sum())
        return float(unit * tried[int(likelihood.argmax())])


def _groups(relations: Integers) -> Iterator[tuple[int, Longs]]:
    """Yield each relation that occurs with the places where it does."""
    order = np.argsort(relations, kind="stable")
    values, first = np.unique(relations[order], return_index=True)
    yield from zip(values.tolist(), np.split(order, first[1:]), strict=True)
