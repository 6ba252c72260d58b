"""What the explorer asks of a run, in the shapes that its page shows.

An entity is ``{id, name, type, degree}``. A fact is ``{head, relation, tail, probability, score,
flags, known}`` with the relation as a number. Flags and reasons are lists of parts: text, or an
entity that the page makes a link. ``explorer-source.js`` gives the same from the data in a page.
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
from nscaching.runs.explain import PathReason
from nscaching.runs.predictions import NEVER_SEEN, Prediction
from nscaching.runs.run import Run
from nscaching.training import Progress

#: New answers to a question, new facts of an entity, similar entities, facts in the queue.
ANSWERS, NEW_FACTS, SIMILAR, QUEUE = 20, 10, 8, 200
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

    def entity(self, number: int) -> Shown:
        """Return an entity with its facts and the entities that it resembles."""
        facts = self._links[0]
        sizes = np.cumsum([len(self.graph.train), len(self.graph.valid)])
        shown = []
        for index in self._facts_of(number).tolist():
            head, relation, tail = facts[index].tolist()
            split, out = SPLITS[int((index >= sizes).sum())], head == number
            other = self.ref(tail if out else head)
            shown.append({"relation": relation, "out": out, "other": other, "split": split})
        name = self.graph.entities[number]
        similar = [
            {**self._named(each.entity), "similarity": round(each.similarity, 4)}
            for each in (self.run.neighbours(name, SIMILAR) if len(self.types) > 1 else [])
        ]
        return {**self.ref(number), "facts": shown, "similar": similar}

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
        known = []
        for other, split in self.graph.answers(side, anchor, relation).items():
            head, tail = (anchor, other) if side == "tail" else (other, anchor)
            ends = {"head": self.ref(head), "relation": relation, "tail": self.ref(tail)}
            known.append({**ends, "known": split})
        return {"known": known, "answers": self._new(side, anchor, relation, ANSWERS, True)}

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
