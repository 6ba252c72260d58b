"""What a search has found, in Python, as files and as JSON; and how its best rose."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nscaching.artefacts.files import write_text
from nscaching.evaluation.intervals import (
    Interval,
    bootstrap_means,
    interval,
    paired_difference,
    within_noise,
)
from nscaching.experiments.tune.folder import SearchFolder
from nscaching.experiments.tune.importance import Importance
from nscaching.experiments.tune.objective import Config, Metric, Objective
from nscaching.experiments.tune.trials import Proposal, Trial, TrialResult


@dataclass(frozen=True)
class CurvePoint:
    """Where a search stood after a result."""

    trials: int  #: different configurations so far
    epochs: int  #: trained so far, in all
    seconds: float  #: spent training so far, over all workers
    top1: float  #: the best score of a trial
    top3: float | None  #: the mean of the three best trials, once there are three

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


class SearchCurve:
    """How the incumbent rises (the paper's figure: top1 and top3); one point per result."""

    def __init__(self) -> None:
        self.points: list[CurvePoint] = []
        self._best: dict[int, float] = {}
        self._seen: set[int] = set()
        self._epochs, self._seconds = 0, 0.0

    def add(self, proposal: Proposal, result: TrialResult, trained: int) -> None:
        """Take a result in; failures cost epochs and seconds and raise nothing."""
        self._seen.add(proposal.trial)
        self._epochs += trained
        self._seconds += result.seconds
        if result.score is not None:
            before = self._best.get(proposal.trial, result.score)
            self._best[proposal.trial] = max(before, result.score)
        if not self._best:
            return
        top = sorted(self._best.values(), reverse=True)[:3]
        top3 = sum(top) / 3 if len(top) == 3 else None
        self.points.append(CurvePoint(len(self._seen), self._epochs, self._seconds, top[0], top3))


@dataclass(frozen=True)
class Gain:
    """How sure the best score is: bootstrap intervals of 95 % over the valid facts.

    They say what another set of facts would change, not that the best of many trials is partly the
    luckiest.
    """

    interval: Interval  #: of the best score
    over_first: float  #: how much the best is above the first trial, the default
    over_first_interval: Interval  #: of that difference, paired by fact
    within_noise: bool  #: whether that difference may be chance

    @classmethod
    def measure(cls, objective: Objective, best: Trial, first: Trial) -> Gain | None:
        """Rank the valid facts with the best and with the first trial, where that is possible."""
        scores = [objective.fact_scores(Path(trial.run)) for trial in (best, first)]
        if scores[0] is None or scores[1] is None:
            return None
        ends = interval(bootstrap_means(scores[0].reshape(-1, 1))[:, 0])
        above, ends_above = paired_difference(scores[0], scores[1])
        return cls(ends, above, ends_above, within_noise(ends_above))


@dataclass(frozen=True)
class SearchResult:
    """The trials of a search, the best of them, and what can be learnt from all."""

    folder: SearchFolder
    method: str
    space: str
    objective: Objective  #: what was tuned
    metric: Metric  #: what the trials are compared by
    base: Config  #: the options the trials have in common
    trials: list[Trial]
    best: Trial
    curve: list[CurvePoint]
    importance: Importance | None
    importance_note: str | None  #: why there is none
    gain: Gain | None  #: how sure the best is; None where the metric has no facts
    seconds: float  #: of this session of the search, the optimiser's own time with it
    pictures: list[str] = field(default_factory=list)
    report: str | None = None  #: the page, where it was written

    @property
    def epochs(self) -> int:
        """Epochs trained in all."""
        return self.curve[-1].epochs

    @property
    def searched(self) -> list[str]:
        """Names of the searched options; one that depends on another is not in every trial."""
        return list(dict.fromkeys(name for trial in self.trials for name in trial.config))

    @property
    def config(self) -> Config:
        """The configuration to train with: the base with the best options found."""
        return replace(self.base, **self.best.config)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, as ``tune --json`` prints it."""
        key = self.metric.key
        return {
            "out": str(self.folder.path),
            "method": self.method,
            "space": self.space,
            "metric": key,
            "trials": [trial.as_dict(key) for trial in self.trials],
            "failed": sum(trial.score is None for trial in self.trials),
            "best": {
                "trial": self.best.number,
                key: self.best.score,
                "best_epoch": self.best.best_epoch,
                "config": self.best.config,
                "file": str(self.folder.best),
                "run": self.best.run,
            },
            "curve": [point.as_dict() for point in self.curve],
            "importance": self.importance.as_dict(key) if self.importance else None,
            "importance_note": self.importance_note,
            "gain": asdict(self.gain) if self.gain else None,
            "epochs": self.epochs,
            "training_seconds": self.curve[-1].seconds,
            "seconds": self.seconds,
            "pictures": self.pictures,
            "report": self.report,
        }

    def write(self) -> None:
        """Write ``best.yaml``, ``trials.csv`` and ``result.json``."""
        write_text(self.folder.best, self.config.as_yaml())
        write_text(self.folder.table, self._table())
        write_text(self.folder.result, json.dumps(self.as_dict(), indent=1) + "\n")

    def _table(self) -> str:
        names = self.searched
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        score_name = f"valid_{self.metric.key}"
        writer.writerow(["trial", "status", score_name, "best_epoch", "epochs", "seconds", *names])
        for trial in self.trials:
            score = "" if trial.score is None else trial.score
            numbers = [trial.best_epoch, trial.epochs, round(trial.seconds, 2)]
            settings = [trial.config.get(name, "") for name in names]
            writer.writerow([trial.number, trial.status, score, *numbers, *settings])
        return text.getvalue()
