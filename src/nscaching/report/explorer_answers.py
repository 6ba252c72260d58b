"""What the explorer asks of a run, in the shapes that its page shows.

An entity is ``{id, name, type, degree}``. A fact is ``{head, relation, tail, probability, score,
flags, known}`` with the relation as a number. Facts of an entity are in groups by relation and end,
``{relation, out, total, facts}`` with ``{other, split}`` as facts, and come a page at a time. Flags
and reasons are lists of parts: text, or an entity that the page makes a link.
``explorer-source.js`` gives the same from the data in a page.
"""

from __future__ import annotations

import hashlib
import heapq
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nscaching.errors import plural
from nscaching.evaluation.positions import Positions
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import SPLITS
from nscaching.graph.pairs import SideName
from nscaching.models import SCORING, Side
from nscaching.report.entity_map import entity_degrees, entity_places, entity_types
from nscaching.runs.explain import PathReason, SharedFact
from nscaching.runs.predictions import NEVER_SEEN, Prediction
from nscaching.runs.run import Run
from nscaching.training import Progress

#: New answers to a question, new facts of an entity, similar entities, facts in the queue.
ANSWERS, NEW_FACTS, SIMILAR, QUEUE = 20, 10, 8, 200
#: Facts of a group that an entity comes with, of all groups together, and of a page of one.
FIRST_OF_GROUP, MOST_OF_ENTITY, PAGE = 18, 2000, 200
#: Answers to each question of an entity among which its new facts are chosen.
_PER_QUESTION = 3
#: Probability below which a fact is shown only where it is asked for.
_LEAST_PROBABLE = 0.01
#: Entities named on the first view.
_LARGEST = 16

Shown = dict[str, Any]


class ExplorerAnswers:
    """Answers about one run, by id.

    The run itself is asked by name: where names are numbers, an id could mean two things.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.graph = run, run.graph
        self.degree = entity_degrees(run.graph)
        every = np.arange(run.graph.num_entities)
        self.types, self.type_names = entity_types(run.graph, every)
        self._single = single_answers(run.graph)

    # What is the same for the whole graph ---------------------------------------------------------

    def info(self) -> Shown:
        """Return what the page needs before anything is asked."""
        graph = self.graph
        scoring = SCORING[self.run.config.scoring].__name__
        return {
            "title": f"{scoring} on {graph.name}",
            "graph": graph.name,
            "fingerprint": hashlib.sha256(graph.fingerprint.encode()).hexdigest()[:16],
            "relations": list(graph.relations),  # of a graph on disk they are no list
            "types": self.type_names,
            "layout": "t-SNE",
            "num_entities": graph.num_entities,
            "num_facts": sum(len(graph.split(name)) for name in SPLITS),
            "largest": np.argsort(-self.degree, kind="stable")[:_LARGEST].tolist(),
            "loops": sorted(graph.relations_with_loops),
            "single": self._single,
        }

    @cached_property
    def _folded(self) -> list[str]:
        return [fold(name) for name in self.graph.entities]

    @cached_property
    def places(self) -> np.ndarray:
        """Places on the map; shape: (n, 2)."""
        table = self.run.model.entity.detach().float().cpu().numpy()
        return entity_places(table, self.degree)

    def refs(self, ids: Iterable[int]) -> list[Shown]:
        """Return entities by id."""
        return [self.ref(int(number)) for number in ids]

    def ref(self, number: int) -> Shown:
        """Return one entity by id."""
        return {
            "id": number,
            "name": self.graph.entities[number],
            "type": int(self.types[number]),
            "degree": int(self.degree[number]),
        }

    def find(self, text: str) -> Shown:
        """Return the entities that have a text in their name."""
        ids, total = find_names(text, self._folded, self.degree)
        return {"entities": self.refs(ids), "total": total}

    # One entity -----------------------------------------------------------------------------------

    @cached_property
    def _links(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Facts of all splits in one array, and which of them hold each entity."""
        facts = np.concatenate([self.graph.split(name) for name in SPLITS])
        ends = np.concatenate([facts[:, 0], facts[:, 2]])
        order = np.argsort(ends, kind="stable")
        place = np.searchsorted(ends[order], np.arange(self.graph.num_entities + 1))
        return facts, order % max(1, len(facts)), place

    def _facts_of(self, number: int) -> np.ndarray:
        _, order, place = self._links
        return np.unique(order[place[number] : place[number + 1]])

    @cached_property
    def _by_size(self) -> tuple[np.ndarray, np.ndarray]:
        """Entities, those with the most facts first, and the place of each among them."""
        largest = np.argsort(-self.degree, kind="stable")
        return largest, np.argsort(largest)

    def _linked(self, number: int) -> np.ndarray:
        """Return relation, side (0: it is the head), other entity and split of its facts. (n, 4).

        Of a relation and side those with the largest other entity come first, each once.
        """
        index = self._facts_of(number)
        facts = self._links[0][index].astype(np.int64)  # products of them need it
        sizes = np.cumsum([len(self.graph.train), len(self.graph.valid)])
        splits = np.tile(np.searchsorted(sizes, index, side="right"), 2)
        largest, place = self._by_size
        relations, entities = self.graph.num_relations, self.graph.num_entities
        keys = np.concatenate(
            [
                (side * relations + facts[:, 1]) * entities + place[facts[:, other]]
                for side, other in ((0, 2), (1, 0))
            ]
        )
        own = np.flatnonzero(np.concatenate([facts[:, 0], facts[:, 2]]) == number)
        keys, first = np.unique(keys[own], return_index=True)  # train before valid before test
        group, other = np.divmod(keys, entities)
        columns = group % relations, group // relations, largest[other], splits[own[first]]
        return np.column_stack(columns)

    def _without_loops(self, number: int) -> np.ndarray:
        """Return the facts of an entity as :meth:`_linked` does; a loop only as one it heads."""
        rows = self._linked(number)
        kept: np.ndarray = rows[(rows[:, 1] == 0) | (rows[:, 2] != number)]
        return kept

    def _page(self, rows: np.ndarray, start: int, most: int) -> list[Shown]:
        return [
            {"other": self.ref(other), "split": SPLITS[split]}
            for other, split in rows[start : start + most, 2:].tolist()
        ]

    def entity(self, number: int) -> Shown:
        """Return an entity with its first facts and the entities that it resembles.

        A hub has more facts than a page can hold: of each group :meth:`facts` gives the others.
        """
        rows = self._without_loops(number)
        starts = np.flatnonzero(np.diff(rows[:, :2], axis=0, prepend=-1).any(axis=1))
        first = max(1, min(FIRST_OF_GROUP, MOST_OF_ENTITY // max(1, len(starts))))
        groups = [
            {
                "relation": int(group[0, 0]),
                "out": bool(group[0, 1] == 0),
                "total": len(group),
                "facts": self._page(group, 0, first),
            }
            for group in np.split(rows, starts[1:])
            if len(group)
        ]
        name = self.graph.entities[number]
        similar = [
            {**self._named(each.entity), "similarity": round(each.similarity, 4)}
            for each in (self.run.neighbours(name, SIMILAR) if len(self.types) > 1 else [])
        ]
        others = len(np.setdiff1d(rows[:, 2], [number]))
        return {**self.ref(number), "groups": groups, "neighbours": others, "similar": similar}

    def facts(self, number: int, relation: int, out: bool, start: int) -> list[Shown]:
        """Return a page of the facts of an entity with a relation, those it heads or the others."""
        rows = self._without_loops(number)
        return self._page(_of_group(rows, relation, out), start, PAGE)

    def known(self, side: SideName, anchor: int, relation: int, start: int = 0) -> Shown:
        """Return a page of what the graph answers to a question, and how many there are."""
        rows = _of_group(self._linked(anchor), relation, side == "tail")
        return {"total": len(rows), "facts": self._page(rows, start, PAGE)}

    def links(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Return the pairs of these entities that a fact links."""
        pairs = set()
        for number in set(ids):
            facts = self._links[0][self._facts_of(number)]
            tails = facts[facts[:, 0] == number, 2]
            linked = tails[np.isin(tails, ids)].tolist()  # a hub has more facts than are shown
            pairs |= {(number, tail) for tail in linked if tail != number}
        return sorted(pairs)

    # Questions ------------------------------------------------------------------------------------

    def ask(self, side: SideName, anchor: int, relation: int) -> Shown:
        """Return what the graph answers to a question, and what the model adds."""
        answers = self._new(side, anchor, relation, ANSWERS, True)
        return {"known": self.known(side, anchor, relation), "answers": answers}

    def _new(
        self, side: str, anchor: int, relation: int, most: int, everything: bool = False
    ) -> list[Shown]:
        options: Any = {"contradictions": everything, "unlikely": everything}
        entity, name = self.graph.entities[anchor], self.graph.relations[relation]
        if side == "head":
            found = self.run.predict_heads(name, entity, most, **options)
        else:
            found = self.run.predict_tails(entity, name, most, **options)
        return [self.shown(prediction) for prediction in found]

    def fresh(self, number: int) -> list[Shown]:
        """Return the most probable new facts of an entity, of the questions it was seen with."""
        facts = self._links[0][self._facts_of(number)]
        asked = {(r, "tail") for r in facts[facts[:, 0] == number, 1].tolist()}
        asked |= {(r, "head") for r in facts[facts[:, 2] == number, 1].tolist()}
        found = [
            answer
            for relation, side in sorted(asked)
            for answer in self._new(side, number, relation, _PER_QUESTION)
            if _worth_showing(answer)
        ]
        found.sort(key=lambda answer: -(answer["probability"] or 0.0))
        return found[:NEW_FACTS]

    def shown(self, prediction: Prediction) -> Shown:
        """Return a prediction as the page shows it."""
        flags: list[Shown] = []
        if NEVER_SEEN in prediction.flags:
            flags.append({"kind": "unseen", "parts": [NEVER_SEEN]})
        if prediction.contradicts is not None:
            parts = ["contradicts ", *self._fact(prediction.contradicts)]
            flags.append({"kind": "contradicts", "parts": parts})
        return {
            "head": self._named(prediction.head),
            "relation": self.graph.relation_ids[prediction.relation],
            "tail": self._named(prediction.tail),
            "score": prediction.score,
            "probability": prediction.probability,
            "flags": flags,
            "known": prediction.split,
        }

    def _named(self, name: str) -> Shown:
        return self.ref(self.graph.entity_ids[name])

    def _fact(self, names: Sequence[str]) -> list[Any]:
        head, relation, tail = names
        return [self._named(head), f" · {relation} · ", self._named(tail)]

    def explain(self, head: int, relation: int, tail: int) -> list[Shown]:
        """Return what speaks for a fact and against it."""
        found = self.run.explain(*self.graph.named((head, relation, tail)))
        name = self.graph.relations[relation]
        reasons = [self._path(head, name, tail, path) for path in found.paths]
        for each in found.similar:
            said = f" is like the {each.side} ({each.similarity:.2f}), and the graph has "
            parts = [self._named(each.entity), said, *self._fact(each.fact), "."]
            reasons.append({"sign": 1, "parts": parts})
        shared = sorted(found.shared, key=lambda each: not each.speaks_for)
        reasons += [self._shared(each) for each in shared]
        if found.contradicts is not None:
            fact = self._fact(found.contradicts)
            parts = ["The graph has ", *fact, "; this relation has one answer as a rule."]
            reasons.append({"sign": -1, "parts": parts})
        of_relation = self.graph.train[self.graph.train[:, 1] == relation]
        for end, side, other, column in ((head, "head", "tail", 0), (tail, "tail", "head", 2)):
            recurs = relation not in self._single[other]  # else a new entity is no surprise
            if recurs and end not in of_relation[:, column]:
                parts = [self.ref(end), f" is never the {side} of “{name}” in the training facts."]
                reasons.append({"sign": -1, "parts": parts})
        return reasons

    def _path(self, head: int, name: str, tail: int, path: PathReason) -> Shown:
        """Say which facts lead from head to tail, and how often such a path goes with it."""
        parts: list[Any] = [self.ref(head)]
        for place, (relation, direction) in enumerate(path.steps):
            parts.append(f" – {relation} → " if direction == "->" else f" ← {relation} – ")
            if place + 1 < len(path.steps) and path.via is not None:
                parts.append(self._named(path.via))
        parts.append(self.ref(tail))
        more = f", and {plural(path.count_via - 1, 'such path')} more" if path.count_via > 1 else ""
        have = "has" if path.confirmed == 1 else "have"
        parts.append(
            f"{more}. Of {plural(path.support, 'pair')} linked like this, "
            f"{path.confirmed:,} {have} “{name}”."
        )
        return {"sign": 1, "parts": parts}

    def _shared(self, reason: SharedFact) -> Shown:
        """Say how many of those that share a fact have the relation, and how many were expected."""
        subject, relation, thing = reason.fact
        known = self._named(thing if subject == "?" else subject)
        fact = [f"? · {relation} · ", known] if subject == "?" else [known, f" · {relation} · ?"]
        counts = (
            f"”, {reason.counted} “{reason.relation}”; {reason.expected:,.0f} would be expected."
        )
        parts = [f"Of {reason.others:,} others with “", *fact, counts]
        return {"sign": 1 if reason.speaks_for else -1, "parts": parts}

    def queue(self, work: float | None = None, progress: Progress | None = None) -> list[Shown]:
        """Return discovered facts, the most probable first.

        ``work`` bounds the scores that are computed: where all pairs would take more, only the
        entities with the most facts are asked about.
        """
        heads = None
        if work is not None:
            count = int(work / max(1, self.graph.num_relations * self.graph.num_entities))
            if count < self.graph.num_entities:
                largest = np.argsort(-self.degree, kind="stable")[: max(1, count)].tolist()
                heads = [self.graph.entities[number] for number in largest]
        found = self.run.discover(QUEUE, heads=heads, progress=progress)
        return [self.shown(prediction) for prediction in found]


def _of_group(rows: np.ndarray, relation: int, out: bool) -> np.ndarray:
    group: np.ndarray = rows[(rows[:, 0] == relation) & (rows[:, 1] == int(not out))]
    return group


def _worth_showing(answer: Shown) -> bool:
    """Say whether a fact is shown unasked: probable enough, and against no fact of the graph."""
    if answer["probability"] is None:
        return not answer["flags"]
    against = any(flag["kind"] == "contradicts" for flag in answer["flags"])
    return answer["probability"] >= _LEAST_PROBABLE and not against


def single_answers(graph: KnowledgeGraph) -> dict[str, list[int]]:
    """Return for each side the relations whose questions have one answer as a rule."""
    positions = Positions.of(graph)
    return {
        name: [r for r in range(graph.num_relations) if positions.has_one_answer(side, r)]
        for name, side in (("head", Side.HEAD), ("tail", Side.TAIL))
    }


#: Entities found at most.
MOST_FOUND = 20


def fold(name: str) -> str:
    """Return a name without case and accents."""
    decomposed = unicodedata.normalize("NFD", name)
    return re.sub(r"[\u0300-\u036f]", "", decomposed).lower()


def find_names(wanted: str, folded: Sequence[str], degree: np.ndarray) -> tuple[list[int], int]:
    """Return ids of folded names that have a part, best first, and how many have it.

    The exact name comes first, then names that begin so, words that do, and any other part; within
    each those with the most facts. ``explorer-find.js`` does the same.
    """
    query = fold(wanted.strip())
    found = [i for i, name in enumerate(folded) if query in name] if query else []
    word = re.compile(rf"(?<![^\W_]){re.escape(query)}")

    def order(number: int) -> tuple[int, int, int]:
        name = folded[number]
        fit = 2 if word.search(name) else 3
        if name.startswith(query):
            fit = 0 if name == query else 1
        return fit, -int(degree[number]), number

    return heapq.nsmallest(MOST_FOUND, found, key=order), len(found)
