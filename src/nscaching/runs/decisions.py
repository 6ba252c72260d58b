"""What a run is asked for decisions: answers, probabilities, new facts, reasons, growth."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from nscaching.artefacts.files import read_json, sealed, unsealed, write_text
from nscaching.errors import UserError
from nscaching.evaluation.calibration import (
    Calibration,
    CalibrationReport,
    calibration_report,
    fit_calibration,
)
from nscaching.graph import KnowledgeGraph, read_triples
from nscaching.models import EmbeddingModel, Side
from nscaching.runs.asking import Asker
from nscaching.runs.discover import discover
from nscaching.runs.names import Reference, Triples, entity_of, relation_of, triple_of
from nscaching.runs.predictions import History, Named, Prediction, Predictions
from nscaching.training import Progress, RunFolder, TrainConfig

if TYPE_CHECKING:
    from nscaching.runs.explain import Explainer, Explanation
    from nscaching.runs.run import Run

#: A question: (head, relation, None) or (None, relation, tail); "?" is None too.
Question = Sequence[Reference | None]
_BY = ("probability", "score")


class Decisions:
    """The part of :class:`nscaching.Run` that answers questions about facts."""

    config: TrainConfig
    graph: KnowledgeGraph
    model: EmbeddingModel
    folder: RunFolder | None

    # Questions -----------------------------------------------------------------------------------

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
        """Return the k best heads of a tail, or of each of a list; as :meth:`predict_tails`."""
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

        ``"?"`` stands for None, unless it is the name of an entity. A path names a file of such
        rows; a row without a question mark is judged as it is.
        """
        if isinstance(questions, str | Path):
            questions = read_triples(questions)
        found = Predictions()
        options = {"known": known, "contradictions": contradictions, "unlikely": unlikely}
        for place, question in enumerate(questions, 1):
            if isinstance(question, str) or len(question) != 3:
                raise UserError(f"A question is (head, relation, None); {question!r} is none.")
            head, relation, tail = (self._asked(part) for part in question)
            try:
                if relation is None or (head is None and tail is None):
                    raise UserError("a question names the relation and one of head and tail.")
                if head is not None and tail is not None:
                    found.append(self.judge(head, relation, tail))
                elif head is not None:
                    found += self.predict_tails(head, relation, k, by=by, **options)
                elif tail is not None:
                    found += self.predict_heads(relation, tail, k, by=by, **options)
            except UserError as error:
                raise UserError(f"Question {place}: {error}") from error
        return found

    def judge(self, head: Reference, relation: Reference, tail: Reference) -> Prediction:
        """Return one triple with its score, probability, flags, and its split if it is a fact."""
        ids = self._triples([(head, relation, tail)])
        asker = self._asker
        logits = asker.logits(ids) if asker.calibration is not None else None
        scores = self.score(ids).tolist()  # type: ignore[attr-defined]
        return asker.predictions(ids, scores, logits, Side.TAIL)[0]

    def split_of(self, head: Reference, relation: Reference, tail: Reference) -> str | None:
        """Return the split that holds a triple, or None for one that the graph does not hold."""
        h, r, t = triple_of(self.graph, (head, relation, tail))
        return self.graph.answers("tail", h, r).get(t)

    def discover(
        self,
        n: int = 100,
        *,
        relations: Reference | Iterable[Reference] | None = None,
        heads: Reference | Iterable[Reference] | None = None,
        tails: Reference | Iterable[Reference] | None = None,
        per_question: int | None = 3,
        per_answer: int | None = None,
        contradictions: bool = False,
        memory_mb: int | None = None,
        progress: Progress | None = None,
    ) -> Predictions:
        """Return the n most probable facts that the graph lacks.

        Asks (h, r, ?) of every relation for every head that was seen with it, or that stands in
        the same positions as those that were; all entities are candidates.

        Args:
            n: Facts wanted; fewer where the graph has no more.
            relations: Only facts of these relations.
            heads: Only facts with these heads.
            tails: Only facts with these tails.
            per_question: At most so many answers to one question; None does not limit them.
            per_answer: At most so many facts with the same relation and tail.
            contradictions: Whether facts that contradict the graph are kept, flagged: a second
                answer where the relation has one.
            memory_mb: Bound of the memory for scores.
            progress: Where progress is shown.

        """
        asker = self._asker
        if memory_mb is not None:
            asker.evidence.memory_mb = memory_mb
        try:
            return discover(
                asker,
                n,
                relations=range(self.graph.num_relations)
                if relations is None
                else [relation_of(self.graph, name) for name in _several(relations)],
                heads=self._entities(heads),
                tails=self._entities(tails),
                per_question=per_question,
                per_answer=per_answer,
                contradictions=contradictions,
                progress=progress,
            )
        finally:
            asker.evidence.memory_mb = self.config.eval_memory

    def explain(
        self, head: Reference, relation: Reference, tail: Reference, k: int = 3
    ) -> Explanation:
        """Return what speaks for a fact and against it, from the training triples.

        Args:
            head: Name or id.
            relation: Name or id.
            tail: Name or id.
            k: Paths, and similar entities, at most.

        """
        from nscaching.runs.explain import Explainer

        prediction = self.judge(head, relation, tail)
        if self._explainer is None:
            self._explainer = Explainer(self.graph)
        ids = self._triples([(head, relation, tail)])[0]
        return self._explainer.explain(prediction, ids.tolist(), k)

    # Probabilities -------------------------------------------------------------------------------

    @property
    def calibration(self) -> Calibration | None:
        """What turns scores into probabilities; fitted on valid once, and kept in the folder.

        None where the graph has no valid triples.
        """
        if not self._calibrated:
            self._calibration = self._load_calibration()
            self._calibrated = True
        return self._calibration

    def probabilities(self, triples: Triples, *, prior: float = 0.5) -> npt.NDArray[np.float64]:
        """Return the probability that each claim is true. Shape: (n,).

        A claim is a triple that somebody states. Before it is looked at, it is taken to be true
        with probability ``prior``; a false one has either an entity of the right type or any.
        This is not the probability of an answer (:meth:`predict_tails`, :meth:`discover`): those
        are picked from thousands of candidates, nearly all of which are false.
        """
        if not 0 < prior < 1:
            raise UserError(f"prior must be above 0 and below 1, not {prior}.")
        if self.calibration is None:
            raise UserError(
                f"The graph '{self.graph.name}' has no valid triples, and probabilities come from "
                "them; train on data with a valid split."
            )
        return self._asker.claims(self._triples(triples), prior)

    def calibration_report(self, split: str = "test", *, seed: int = 0) -> CalibrationReport:
        """Compare the probabilities of a split's facts and negatives with how many are true.

        Each fact stands beside a negative of the right type and one of any type.
        """
        facts = self.graph.split(split)
        if len(facts) == 0 or self.calibration is None:
            raise UserError(
                f"A calibration report needs valid triples and triples of {split}; the graph "
                f"'{self.graph.name}' lacks them."
            )
        return calibration_report(self._asker.evidence, self.calibration, split=split, seed=seed)

    def _load_calibration(self) -> Calibration | None:
        if len(self.graph.valid) == 0:
            return None
        path = None if self.folder is None else self.folder.path / "calibration.json"
        if path is not None and path.is_file():
            try:
                given = unsealed(read_json(path)) or {}
                return Calibration.from_dict(given, self.model, self.graph.num_relations)
            except (ValueError, OverflowError):  # a UserError is a ValueError
                pass  # it can be made again
        fitted = fit_calibration(self.model, self.graph, memory_mb=self.config.eval_memory)
        # What is kept is what is used: a run read back gives the same probabilities.
        plain = json.loads(json.dumps(fitted.as_dict()))
        if path is not None and path.parent.is_dir():
            # A folder that cannot be written to can be asked all the same.
            with contextlib.suppress(UserError):
                write_text(path, json.dumps(sealed(plain)) + "\n")
        return Calibration.from_dict(plain, self.model, self.graph.num_relations)

    # Learning from answers -----------------------------------------------------------------------

    @property
    def rejected(self) -> frozenset[Named]:
        """Facts that were rejected: never offered again. See :meth:`update`."""
        if self._rejected is None and "rejected" in self.graph.labelled:
            self._rejected = frozenset(
                (self.graph.entities[h], self.graph.relations[r], self.graph.entities[t])
                for h, r, t in self.graph.labelled["rejected"][:, :3].tolist()
            )
        if self._rejected is None:  # of the first version, or none
            path = None if self.folder is None else self.folder.path / "rejected.tsv"
            rows = read_triples(path) if path is not None and path.is_file() else []
            self._rejected = frozenset((h, r, t) for h, r, t in rows)
        return self._rejected

    @property
    def history(self) -> History:
        """What the run wrote down while it trained: one line per epoch and per evaluation."""
        return History(self.folder.read_metrics() if self.folder is not None else self._lines)

    def update(
        self,
        facts: Any = None,
        *,
        accept: Any = None,
        reject: Any = None,
        out: str | Path | None = None,
        epochs: int | None = None,
        overwrite: bool = False,
        progress: Progress | str = "auto",
    ) -> Run:
        """Learn from new facts and from decisions, and return a new run; this one stays as it is.

        Args:
            facts: New triples, a file or a list of names; new entities and relations may be in it.
            accept: Discovered triples that were found true; they become facts.
            reject: Discovered triples that were found false; they are never offered again.
            out: Folder of the new run.
            epochs: Epochs of training, from the parameters of this run; by default a fifth of
                this run's, at least 5.
            overwrite: Whether a run in that folder is replaced.
            progress: How progress is shown.

        """
        from nscaching.runs.update import update_run

        return update_run(
            cast("Run", self),
            facts,
            accept,
            reject,
            out=out,
            epochs=epochs,
            overwrite=overwrite,
            progress=progress,
        )

    # Inside --------------------------------------------------------------------------------------

    _calibrated = False
    _calibration: Calibration | None = None
    _rejected: frozenset[Named] | None = None
    _explainer: Explainer | None = None
    _kept_asker: Asker | None = None
    _lines: Sequence[dict[str, Any]] = ()

    @property
    def _asker(self) -> Asker:
        if self._kept_asker is None:
            graph = self.graph
            known = [
                (graph.entity_ids[h], graph.relation_ids[r], graph.entity_ids[t])
                for h, r, t in sorted(self.rejected)
                if h in graph.entity_ids and r in graph.relation_ids and t in graph.entity_ids
            ]
            rejected = np.array(known, dtype=np.int64).reshape(-1, 3)
            self._kept_asker = Asker(
                self.model, graph, self.calibration, rejected, self.config.eval_memory
            )
        return self._kept_asker

    def _predict(
        self,
        side: Side,
        anchor: Reference | Sequence[Reference],
        relation: Reference,
        k: int,
        kept: tuple[bool, bool, bool],
        by: str,
    ) -> Predictions:
        if k < 1:
            raise UserError(f"k must be at least 1, not {k}.")
        if by not in _BY:
            raise UserError(f"by must be {' or '.join(_BY)}, not '{by}'.")
        anchors = np.array(
            [entity_of(self.graph, name) for name in _several(anchor)], dtype=np.int64
        )
        relation_id = relation_of(self.graph, relation)
        asker, found = self._asker, Predictions()
        chunk = asker.evidence.chunk()
        for start in range(0, len(anchors), chunk):
            block = anchors[start : start + chunk]
            ranked = asker.ask(
                side,
                relation_id,
                block,
                k,
                known=kept[0],
                contradictions=kept[1] or by == "score",
                unlikely=kept[2] or by == "score",
                by_score=by == "score",
            )
            triples = np.empty((len(ranked.row), 3), dtype=np.int64)
            triples[:, 1] = relation_id
            place, answer = (2, 0) if side is Side.HEAD else (0, 2)
            triples[:, place], triples[:, answer] = block[ranked.row], ranked.entity
            found += asker.predictions(triples, ranked.score.tolist(), ranked.logit, side)
        return found

    def _asked(self, part: Reference | None) -> Reference | None:
        return None if part == "?" and "?" not in self.graph.entity_ids else part

    def _entities(self, names: Reference | Iterable[Reference] | None) -> Any:
        if names is None:
            return None
        return np.array([entity_of(self.graph, name) for name in _several(names)], dtype=np.int64)

    def _triples(self, triples: Triples) -> npt.NDArray[np.int64]:
        ids = [triple_of(self.graph, triple) for triple in triples]
        return np.array(ids, dtype=np.int64).reshape(-1, 3)


def _several(names: Any) -> list[Any]:
    """Return one name, or several, as a list."""
    if isinstance(names, str | int | np.integer):
        return [names]
    return list(names)
