"""What the explorer asks of a run, in the shapes that its page shows.

An entity is ``{id, name, type, degree}``. A fact is ``{head, relation, tail, probability, score,
flags, known}`` with the relation as a number. Flags and reasons are lists of parts: text, or an
entity that the page makes a link. ``explorer-source.js`` gives the same from the data in a page.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nscaching.evaluation.evidence import Positions
from nscaching.graph import KnowledgeGraph
from nscaching.models import SCORING, Side
from nscaching.report.entity_map import entity_degrees, entity_places, entity_types
from nscaching.report.markup import count, plural
from nscaching.runs.explain import PathReason, SimilarEntity
from nscaching.runs.predictions import Prediction
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
    """Answers about one run, by id."""

    def __init__(self, run: Run) -> None:
        self.run, self.graph = run, run.graph
        self.degree = entity_degrees(run.graph)
        self.types, self.type_names = entity_types(run.graph)

    # What is the same for the whole graph ---------------------------------------------------------

    def info(self) -> Shown:
        """Return what the page needs before anything is asked."""
        graph = self.graph
        scoring = SCORING[self.run.config.scoring].__name__
        return {
            "title": f"{scoring} on {graph.name}",
            "graph": graph.name,
            "fingerprint": hashlib.sha256(graph.fingerprint.encode()).hexdigest()[:16],
            "relations": graph.relations,
            "types": self.type_names,
            "layout": "t-SNE",
            "num_entities": graph.num_entities,
            "num_facts": sum(len(graph.split(name)) for name in ("train", "valid", "test")),
            "largest": np.argsort(-self.degree, kind="stable")[:_LARGEST].tolist(),
            "loops": sorted(graph.relations_with_loops),
            "single": single_answers(graph),
        }

    @cached_property
    def names(self) -> NameIndex:
        """The index of the names; made when something is looked for."""
        return NameIndex(self.graph.entities, self.degree)

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
        ids, total = self.names.find(text)
        return {"entities": self.refs(ids), "total": total}

    # One entity -----------------------------------------------------------------------------------

    @cached_property
    def _links(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Facts of all splits in one array, and which of them hold each entity."""
        facts = np.concatenate([self.graph.split(name) for name in ("train", "valid", "test")])
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
            split = ("train", "valid", "test")[int((index >= sizes).sum())]
            other = self.ref(tail if head == number else head)
            shown.append(
                {"relation": relation, "out": head == number, "other": other, "split": split}
            )
        return {**self.ref(number), "facts": shown, "similar": self._similar(number)}

    def _similar(self, number: int) -> list[Shown]:
        if self.graph.num_entities < 2:
            return []
        ids = self.graph.entity_ids
        found = self.run.neighbours(number, SIMILAR)
        return [
            {**self.ref(ids[each.entity]), "similarity": round(each.similarity, 4)}
            for each in found
        ]

    def links(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Return the pairs of these entities that a fact links."""
        facts, among = self._links[0], set(ids)
        pairs = {
            (head, tail)
            for number in among
            for head, _, tail in facts[self._facts_of(number)].tolist()
            if head == number and tail in among and tail != head
        }
        return sorted(pairs)

    # Questions ------------------------------------------------------------------------------------

    def ask(self, side: str, anchor: int, relation: int, most: int = ANSWERS) -> Shown:
        """Return what the graph answers to a question, and what the model adds."""
        known = [
            {**self._triple(side, anchor, relation, other), "known": split}
            for other, split in self.graph.answers(
                "head" if side == "head" else "tail", anchor, relation
            ).items()
        ]
        return {"known": known, "answers": self._new(side, anchor, relation, most, True)}

    def _new(
        self, side: str, anchor: int, relation: int, most: int, everything: bool = False
    ) -> list[Shown]:
        options: Any = {"contradictions": everything, "unlikely": everything}
        if side == "head":
            found = self.run.predict_heads(relation, anchor, most, **options)
        else:
            found = self.run.predict_tails(anchor, relation, most, **options)
        return [self.shown(prediction) for prediction in found]

    def _triple(self, side: str, anchor: int, relation: int, other: int) -> Shown:
        head, tail = (anchor, other) if side == "tail" else (other, anchor)
        return {"head": self.ref(head), "relation": relation, "tail": self.ref(tail)}

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
        entities, relations = self.graph.entity_ids, self.graph.relation_ids
        return {
            "head": self.ref(entities[prediction.head]),
            "relation": relations[prediction.relation],
            "tail": self.ref(entities[prediction.tail]),
            "score": prediction.score,
            "probability": prediction.probability,
            "flags": self._flags(prediction),
            "known": prediction.split,
        }

    def _flags(self, prediction: Prediction) -> list[Shown]:
        flags: list[Shown] = []
        if not prediction.seen:
            flags.append({"kind": "unseen", "parts": ["never seen with this relation"]})
        if prediction.contradicts is not None:
            parts = ["contradicts ", *self._fact(prediction.contradicts)]
            flags.append({"kind": "contradicts", "parts": parts})
        return flags

    def _fact(self, names: Sequence[str]) -> list[Any]:
        ids = self.graph.entity_ids
        head, relation, tail = names
        return [self.ref(ids[head]), f" · {relation} · ", self.ref(ids[tail])]

    def explain(self, head: int, relation: int, tail: int) -> list[Shown]:
        """Return what speaks for a fact and against it."""
        found = self.run.explain(head, relation, tail)
        name = self.graph.relations[relation]
        reasons = [self._path(head, name, tail, path) for path in found.paths]
        reasons += [self._resemblance(each) for each in found.similar]
        if found.contradicts is not None:
            said = [
                "The graph has ",
                *self._fact(found.contradicts),
                "; both cannot hold as a rule.",
            ]
            reasons.append({"sign": -1, "parts": said})
        for end, side in ((head, "head"), (tail, "tail")):
            if not self._stands(end, relation, side):
                said = [self.ref(end), f" is never the {side} of “{name}” in the training facts."]
                reasons.append({"sign": -1, "parts": said})
        return reasons

    def _path(self, head: int, name: str, tail: int, path: PathReason) -> Shown:
        """Say which facts lead from head to tail, and how often such a path goes with it."""
        parts: list[Any] = [self.ref(head)]
        for place, (relation, direction) in enumerate(path.steps):
            parts.append(f" – {relation} → " if direction == "->" else f" ← {relation} – ")
            if place + 1 < len(path.steps) and path.via is not None:
                parts.append(self.ref(self.graph.entity_ids[path.via]))
        parts.append(self.ref(tail))
        more = f", and {plural(path.count_via - 1, 'such path')} more" if path.count_via > 1 else ""
        have = "has" if path.confirmed == 1 else "have"
        parts.append(
            f"{more}. Of {plural(path.support, 'pair')} linked like this, "
            f"{count(path.confirmed)} {have} “{name}”."
        )
        return {"sign": 1, "parts": parts}

    def _resemblance(self, similar: SimilarEntity) -> Shown:
        entity = self.ref(self.graph.entity_ids[similar.entity])
        said = f" is like the {similar.side} ({similar.similarity:.2f}), and the graph has "
        return {"sign": 1, "parts": [entity, said, *self._fact(similar.fact), "."]}

    def _stands(self, entity: int, relation: int, side: str) -> bool:
        column = 0 if side == "head" else 2
        train = self.graph.train
        return bool(((train[:, column] == entity) & (train[:, 1] == relation)).any())

    def queue(
        self, most: int = QUEUE, work: float | None = None, progress: Progress | None = None
    ) -> list[Shown]:
        """Return discovered facts, the most probable first.

        ``work`` bounds the scores that are computed: where all pairs would take more, only the
        entities with the most facts are asked about.
        """
        heads = None
        if work is not None:
            count = int(work / max(1, self.graph.num_relations * self.graph.num_entities))
            if count < self.graph.num_entities:
                heads = np.argsort(-self.degree, kind="stable")[: max(1, count)].tolist()
        found = self.run.discover(most, heads=heads, progress=progress)
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


#: Entities found at most, and names with the text in their middle that are looked at for them.
MOST_FOUND, _MOST_INSIDE = 20, 4000


def fold(name: str) -> str:
    """Return a name without case and accents."""
    decomposed = unicodedata.normalize("NFD", name)
    return re.sub(r"[\u0300-\u036f]", "", decomposed).lower()


class NameIndex:
    """Names in order, for what begins so, and one text of all, for what has it inside."""

    def __init__(self, names: Sequence[str], degree: np.ndarray) -> None:
        folded = [fold(name) for name in names]
        self.degree = np.asarray(degree)
        self.order = np.array(sorted(range(len(folded)), key=folded.__getitem__), dtype=np.int64)
        self.sorted = [folded[index] for index in self.order.tolist()]
        self.text = "\n" + "\n".join(folded) + "\n"
        lengths = np.array([len(name) + 1 for name in folded], dtype=np.int64)
        self.start = np.concatenate([[1], 1 + np.cumsum(lengths)])

    def find(self, wanted: str, most: int = MOST_FOUND) -> tuple[list[int], int]:
        """Return ids, best first, and how many there are.

        The exact name comes first, then names that begin so, words that do, and any other part;
        within each those with the most facts. The total counts at most some thousands.
        """
        query = fold(wanted.strip())
        if not query or "\n" in query:
            return [], 0
        low = bisect_left(self.sorted, query)
        high = bisect_left(self.sorted, query + "\U0010ffff")
        begins = self.order[low:high]
        exact = begins[: bisect_left(self.sorted, query + "\0", low, high) - low]
        chosen = [*self._frequent(exact, most), *self._frequent(begins[len(exact) :], most)]
        total = len(begins)
        if len(chosen) < most:
            inside, words = self._inside(query)
            inside, words = (np.setdiff1d(each, begins) for each in (inside, words))
            total += len(inside)
            chosen += self._frequent(words, most)
            chosen += self._frequent(np.setdiff1d(inside, words), most)
        return chosen[:most], total

    def _frequent(self, ids: np.ndarray, most: int) -> list[int]:
        order = np.lexsort((ids, -self.degree[ids]))[:most]
        found: list[int] = ids[order].tolist()
        return found

    def _inside(self, query: str) -> tuple[np.ndarray, np.ndarray]:
        """Return entities with the text anywhere, and those of them where a word begins so."""
        found = re.finditer(re.escape(query), self.text)
        places = [each.start() for each, _ in zip(found, range(_MOST_INSIDE), strict=False)]
        at = np.array(places, dtype=np.int64)
        ids = np.searchsorted(self.start, at, side="right") - 1
        begins = np.array([not self.text[place - 1].isalnum() for place in places], dtype=bool)
        return np.unique(ids), np.unique(ids[begins])
