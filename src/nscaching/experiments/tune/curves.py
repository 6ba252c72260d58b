"""How the best of a search rises, trial by trial (the paper's figure: top1 and top3)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nscaching.experiments.tune.journal import Answer, Question


@dataclass(frozen=True)
class CurvePoint:
    """Where a search stood after an answer."""

    trials: int  #: different settings answered so far
    epochs: int  #: trained so far, in all
    seconds: float  #: spent training so far, over all workers
    top1: float  #: the best score of a trial
    top3: float | None  #: the mean of the three best trials, once there are three

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


class Curve:
    """Grows by one point an answer."""

    def __init__(self) -> None:
        self.points: list[CurvePoint] = []
        self._best: dict[int, float] = {}
        self._seen: set[int] = set()
        self._epochs, self._seconds = 0, 0.0

    def add(self, question: Question, answer: Answer, trained: int) -> None:
        """Take an answer in; failures cost epochs and seconds and raise nothing."""
        self._seen.add(question.trial)
        self._epochs += trained
        self._seconds += answer.seconds
        if answer.score is not None:
            before = self._best.get(question.trial, answer.score)
            self._best[question.trial] = max(before, answer.score)
        if not self._best:
            return
        top = sorted(self._best.values(), reverse=True)[:3]
        top3 = sum(top) / 3 if len(top) == 3 else None
        self.points.append(CurvePoint(len(self._seen), self._epochs, self._seconds, top[0], top3))
