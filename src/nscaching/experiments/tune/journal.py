"""The book of a search: every question and every answer, in the order in which they came.

``trials.jsonl`` is only ever added to, and it is the truth: an optimiser that is asked and told the
same things in the same order, from the same seed, stands where the old one stood. Replaying the
book is therefore all that resuming a search needs, with any number of workers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nscaching.experiments.tune.space import Position
from nscaching.files import append_json_line, read_json_lines, write_json_lines

SUCCESS, FAILED, RUNNING = "success", "failed", "running"


@dataclass(frozen=True)
class Question:
    """What the optimiser wants to know: how good a point is after so many epochs."""

    trial: int  #: counted from 1; the same point has the same number at every number of epochs
    positions: dict[str, Position]
    epochs: int
    budget: float | None = None  #: epochs as the optimiser counts them, not always whole

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from other questions."""
        return self.trial, self.epochs


@dataclass(frozen=True)
class Answer:
    """How training a trial up to some epochs went."""

    status: str
    score: float | None = None  #: the best on valid so far
    best_epoch: int = 0
    epochs: int = 0  #: epochs the run has in all
    anew: bool = True  #: trained from the start, not from a checkpoint
    seconds: float = 0.0  #: spent for this answer
    error: str | None = None
    fatal: bool = False  #: the search itself cannot go on

    @property
    def cost(self) -> float:
        """What the optimiser minimises: 1 - score, and 1 for a failure."""
        return 1.0 - self.score if self.score is not None else 1.0


#: A question, or a question with its answer.
Event = tuple[Question, Answer | None]


@dataclass
class Trial:
    """One point of the space and how far it has come."""

    number: int
    config: dict[str, Any]
    positions: dict[str, Position]
    run: str
    status: str = RUNNING
    asked_epochs: int = 0  #: the most it was allowed; ``epochs`` is fewer when it lost patience
    score: float | None = None  #: by the measure of the search, the best on valid
    best_epoch: int = 0
    epochs: int = 0
    seconds: float = 0.0
    error: str | None = None

    def add(self, question: Question, answer: Answer) -> int:
        """Take one more answer in; return the epochs that were trained for it."""
        trained = answer.epochs if answer.anew else max(0, answer.epochs - self.epochs)
        self.asked_epochs = max(self.asked_epochs, question.epochs)
        self.status, self.error = answer.status, answer.error
        self.seconds += answer.seconds
        self.epochs = max(self.epochs, answer.epochs)
        if answer.score is not None and (self.score is None or answer.score > self.score):
            self.score, self.best_epoch = answer.score, answer.best_epoch
        return trained

    @property
    def mrr(self) -> float | None:
        """The score of a run on a knowledge graph, by its name."""
        return self.score

    def as_dict(self, measure: str) -> dict[str, Any]:
        """Return what a reader wants to know; the score goes by the name of the measure."""
        known = asdict(self)
        del known["positions"]
        return {measure if name == "score" else name: value for name, value in known.items()}


class Journal:
    """The file ``trials.jsonl``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def repair(self) -> None:
        """Drop the line a killed process half wrote, so that the next one starts a line."""
        if self.path.exists():
            write_json_lines(self.path, read_json_lines(self.path))

    def asked(self, question: Question) -> None:
        """Write down a question."""
        append_json_line(self.path, {"event": "asked", **asdict(question)})

    def answered(self, question: Question, answer: Answer) -> None:
        """Write down an answer."""
        line = {"event": "answered", "trial": question.trial, "asked_epochs": question.epochs}
        append_json_line(self.path, {**line, **asdict(answer)})

    def events(self) -> list[Event]:
        """Return all questions and answers; an answer comes with its question."""
        found: list[Event] = []
        waiting: dict[tuple[int, int], Question] = {}
        for line in read_json_lines(self.path):
            if line.pop("event") == "asked":
                question = Question(**line)
                waiting[question.key] = question
                found.append((question, None))
            else:
                key = line.pop("trial"), line.pop("asked_epochs")
                if "mrr" in line:  # as the first books call it
                    line["score"] = line.pop("mrr")
                found.append((waiting.pop(key), Answer(**line)))
        return found
