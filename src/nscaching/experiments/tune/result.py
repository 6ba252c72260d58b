"""What a search has found, in Python, as files and as JSON."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field, replace
from typing import Any

from nscaching.experiments.tune.curves import CurvePoint
from nscaching.experiments.tune.folder import SearchFolder
from nscaching.experiments.tune.importance import Importance
from nscaching.experiments.tune.journal import Trial
from nscaching.experiments.tune.subject import Config, Measure, Subject
from nscaching.files import write_text


@dataclass(frozen=True)
class SearchResult:
    """The trials of a search, the best of them, and what can be learnt from all."""

    folder: SearchFolder
    method: str
    space: str
    subject: Subject  #: what was tuned
    measure: Measure  #: what the trials are compared by
    base: Config  #: the options the trials have in common
    trials: list[Trial]
    best: Trial
    curve: list[CurvePoint]
    importance: Importance | None
    seconds: float  #: of this part of the search, the optimiser's own time with it
    pictures: list[str] = field(default_factory=list)
    report: str | None = None  #: the page, where it was written

    @property
    def epochs(self) -> int:
        """Epochs trained in all."""
        return self.curve[-1].epochs

    @property
    def config(self) -> Config:
        """The configuration to train with: the base with the best options found."""
        return replace(self.base, **self.best.config)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, as ``tune --json`` prints it."""
        key = self.measure.key
        return {
            "out": str(self.folder.path),
            "method": self.method,
            "space": self.space,
            "measure": key,
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
        names = list(self.best.config)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        score_name = f"valid_{self.measure.key}"
        writer.writerow(["trial", "status", score_name, "best_epoch", "epochs", "seconds", *names])
        for trial in self.trials:
            score = "" if trial.score is None else trial.score
            numbers = [trial.best_epoch, trial.epochs, round(trial.seconds, 2)]
            settings = [trial.config[name] for name in names]
            writer.writerow([trial.number, trial.status, score, *numbers, *settings])
        return text.getvalue()
