"""What a run is asked for decisions: answers and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from nscaching.errors import UserError
from nscaching.evaluation import score_triples
from nscaching.evaluation.calibration import answer_logits
from nscaching.graph import read_triples
from nscaching.graph.names import Longs
from nscaching.models import Side
from nscaching.runs.learning import Learning
from nscaching.runs.predictions import Prediction, Predictions, Reference, rows_of, triple_of
from nscaching.runs.unknown import refuse_unknown

if TYPE_CHECKING:
    from nscaching.runs.explain import Explainer, Explanation

#: A question: (head, relation, None) or (None, relation, tail); "?" is None too.
Question = Sequence[Reference | None]
_BY = ("probability", "score")


class Decisions(Learning):
    """The part of :class:`nscaching.Run` that answers questions about facts."""

    def predict_tails(
        self,
        head: Reference | Sequence[Reference],
        relation: Reference,
        k: int = 10,
        *,
        known: bool = False,
        contradictions: bool = False,
        unlikely: bool = False,
        by: str = "probability",
    ) -> Predictions:
        """Return the k best tails of a head, or of each of a list of heads.

        Args:
            head: Name or id of an entity, or a list of them.
            relation: Name or id of the relation.
            k: Answers per head.
            known: Whether facts of the graph are among the answers, marked with their split.
            contradictions: Whether second answers are kept, flagged, where the relation has one.
            unlikely: Whether answers are kept, flagged, that were never seen with the relation and
                have a probability below 1 %.
            by: What answers are ordered by: ``"probability"``, or the raw ``"score"``, which keeps
                both.

        Returns:
            A list that shows itself in notebooks and has ``to_frame()`` and ``write(path)``. The
            head itself is no answer, unless the relation holds between something and itself
            somewhere; rejected facts never are.

        Examples:
            >>> answers = run.predict_tails(["Uruguay", "France"], "speaks", k=3)
            >>> frame = answers.to_frame()

        """
        return self._predict(Side.TAIL, head, relation, k, (known, contradictions, unlikely), by)

    def predict_heads(
        self,
        relation: Reference,
        tail: Reference | Sequence[Reference],
        k: int = 10,
        *,
        known: bool = False,
        contradictions: bool = False,
        unlikely: bool = False,
        by: str = "probability",
    ) -> Predictions:
        """Return the k best heads of a tail, or of each of a list; as :meth:`predict_tails`.

        Examples:
            >>> answers = run.predict_heads("speaks", "French", k=3, known=True)

        """
        return self._predict(Side.HEAD, tail, relation, k, (known, contradictions, unlikely), by)

    def ask(
        self,
        questions: Iterable[Question] | str | Path,
        k: int = 10,
        *,
        known: bool = False,
        contradictions: bool = False,
        unlikely: bool = False,
        by: str = "probability",
    ) -> Predictions:
        """Answer many questions: (head, relation, None) or (None, relation, tail).

        Args:
            questions: A list, a data frame or a file of such rows. ``"?"`` stands for None, unless
                it is the name of an entity; a row without a question mark is judged as it is.
                Names that the graph does not have are refused, all in one error.
            k: Answers per question.
            known: As in :meth:`predict_tails`.
            contradictions: As in :meth:`predict_tails`.
            unlikely: As in :meth:`predict_tails`.
            by: As in :meth:`predict_tails`.

        Returns:
            The answers, question after question; ``unanswered`` lists the questions that have none.

        Examples:
            >>> answers = run.ask([("Uruguay", "speaks", None), (None, "speaks", "French")], k=2)

        """
        file = Path(questions).expanduser() if isinstance(questions, str | Path) else None
        asked = [
            self._asked(row) for row in rows_of(questions if file is None else read_triples(file))
        ]
        refuse_unknown(self.graph, asked, file)
        groups: dict[tuple[Side, int], dict[int, list[int]]] = {}  #: places by question
        whole: dict[int, tuple[int, int, int]] = {}
        for place, question in enumerate(asked):
            try:
                head, relation, tail = question
                if relation is None or (head is None and tail is None):
                    raise UserError("a question names the relation and one of head and tail.")
                if head is not None and tail is not None:
                    whole[place] = triple_of(self.graph, (head, relation, tail))
                    continue
                side, anchor = (Side.TAIL, head) if tail is None else (Side.HEAD, tail)
                group = groups.setdefault((side, self.graph.relation_id(relation)), {})
                group.setdefault(self.graph.entity_id(cast(Reference, anchor)), []).append(place)
            except UserError as error:
                raise UserError(f"Question {place + 1}: {error}") from error
        answers: dict[int, list[Prediction]] = {}
        judged = self._judged(np.array([*whole.values()], dtype=np.int64).reshape(-1, 3))
        answers |= {place: [one] for place, one in zip(whole, judged, strict=True)}
        kept = known, contradictions, unlikely
        for (side, relation_id), places in groups.items():
            anchors = np.fromiter(places, dtype=np.int64)
            for anchor_id, found in self._answers(side, relation_id, anchors, k, kept, by):
                for place in places[anchor_id]:
                    answers.setdefault(place, []).append(found)
        listed = Predictions(one for place in sorted(answers) for one in answers[place])
        listed.unanswered = [
            (head, relation, tail)
            for place, (head, relation, tail) in enumerate(asked)
            if place not in answers
        ]
        return listed

    def judge(self, head: Reference, relation: Reference, tail: Reference) -> Prediction:
        """Return one triple with its score, probability, flags, and its split if it is a fact.

        Examples:
            >>> run.judge("China", "speaks", "Brazil").flags
            ['never seen with this relation']

        """
        return self._judged(self._triples([(head, relation, tail)]))[0]

    def split_of(self, head: Reference, relation: Reference, tail: Reference) -> str | None:
        """Return the split that holds a triple, or None for one that the graph does not hold."""
        h, r, t = triple_of(self.graph, (head, relation, tail))
        return self.graph.answers("tail", h, r).get(t)

    def explain(
        self, head: Reference, relation: Reference, tail: Reference, k: int = 3
    ) -> Explanation:
        """Return what speaks for a fact and against it, from the training triples.

        Args:
            head: Name or id.
            relation: Name or id.
            tail: Name or id.
            k: Paths, and similar entities, at most.

        Returns:
            Paths, similar entities and contradictions; ``print`` shows them as sentences.

        Examples:
            >>> reasons = run.explain("Winnipeg", "in time zone", "America/Toronto").sentences()

        """
        ids = self._triples([(head, relation, tail)])
        return self._explainer.explain(self._judged(ids)[0], ids[0].tolist(), k)

    def remark(self, side: Side, anchor: Reference, relation: Reference) -> str | None:
        """Return a sentence on a question for one side that can hardly have a new answer."""
        graph = self.graph
        entity, r = graph.entity_id(anchor), graph.relation_id(relation)
        known = graph.answers(side.word, entity, r)
        name, of = graph.entities[entity], graph.relations[r]
        if known and self._asker.evidence.positions.has_one_answer(side, r):
            fact = graph.entities[next(iter(known))]
            return f"The graph has the one answer already: {fact}."
        if not self._asker.whole.rows(side.other, r, np.array([entity])).seen[0]:
            of_entity = graph.train[:, side.other.column] == entity
            used = np.unique(graph.train[of_entity, 1]).tolist()
            others = ", ".join(f"'{graph.relations[each]}'" for each in used[:5])
            where = side.other.word
            return f"{name} is no {where} of '{of}'" + (f"; it is of {others}." if others else ".")
        return None

    @cached_property
    def _explainer(self) -> Explainer:
        from nscaching.runs.explain import Explainer

        return Explainer(self.graph)

    def _judged(self, ids: Longs, as_claims: bool = False) -> Predictions:
        """Return triples of ids, (n, 3), with what is known of them: as answers or as claims."""
        asker = self._asker
        log_odds = asker.claims if as_claims else asker.logits
        logits = log_odds(ids) if asker.calibration is not None else None
        scores = score_triples(self.model, ids).tolist()
        return Predictions(asker.predictions(ids, scores, logits, Side.TAIL))

    def _predict(
        self,
        side: Side,
        anchor: Reference | Sequence[Reference],
        relation: Reference,
        k: int,
        kept: tuple[bool, bool, bool],
        by: str,
    ) -> Predictions:
        anchors, relation_id = self._entities(anchor), self.graph.relation_id(relation)
        found = self._answers(side, relation_id, anchors, k, kept, by)
        return Predictions(answer for _, answer in found)

    def _answers(
        self,
        side: Side,
        relation: int,
        anchors: Longs,
        k: int,
        kept: tuple[bool, bool, bool],
        by: str,
    ) -> Iterator[tuple[int, Prediction]]:
        """Yield what is asked about and an answer, question after question; anchors: (b,).

        ``kept`` says whether known facts, contradictions and unlikely answers are.
        """
        check_count(k)
        if by not in _BY:
            raise UserError(f"by must be {' or '.join(_BY)}, not '{by}'.")
        asker = self._asker
        chunk = asker.evidence.chunk()
        for start in range(0, len(anchors), chunk):
            ranked = asker.ask(
                side,
                relation,
                anchors[start : start + chunk],
                k,
                known=kept[0],
                contradictions=kept[1] or by == "score",
                unlikely=kept[2] or by == "score",
                by_score=by == "score",
            )
            scores = ranked.score.tolist()
            logits = answer_logits(ranked.logit)
            found = asker.predictions(ranked.triples, scores, logits, side)
            yield from zip(ranked.triples[:, side.other.column].tolist(), found, strict=True)

    def _asked(self, question: Question) -> Question:
        """Return a question with None for what is asked for."""
        if isinstance(question, str) or len(question) != 3:
            raise UserError(f"A question is (head, relation, None); {question!r} is none.")
        named = "?" in self.graph.entity_ids
        return [None if part == "?" and not named else part for part in question]


def check_count(k: Any, name: str = "k") -> None:
    """Refuse what is no number of answers: a positive whole number."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise UserError(f"{name} must be a whole number, at least 1, not {k!r}.")
    if k < 1:
        raise UserError(f"{name} must be at least 1, not {k}.")
