"""What a comparison found: a result for each run, a row for each contender."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from nscaching.errors import UserError

#: The numbers of a row: the mean over seeds, and under ``NAME_spread`` the standard deviation.
MEASURES = ("mrr", "hits@10", "accuracy", "seconds_per_epoch")
#: What a comparison was asked to do.
_GIVEN = ("data", "scoring", "samplers", "seeds", "options")


@dataclass(frozen=True)
class RunResult:
    """One run, finished or failed."""

    sampler: str  #: label of the contender
    seed: int
    run: str  #: folder, below that of the comparison
    config: str  #: digest of the configuration, by which a finished run is known again
    error: str | None = None  #: why there are no results
    test: dict[str, Any] | None = None  #: metrics of the best validated model; None: no test split
    valid: dict[str, Any] | None = None
    accuracy: float | None = None  #: of triplet classification; None: no valid or test split
    seconds_per_epoch: float | None = None
    seconds: float = 0.0  #: of training and validating
    epochs: int = 0
    best_epoch: int | None = None
    extra_parameters: int | None = None
    device: str | None = None

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> RunResult:
        """Read back what ``asdict`` wrote."""
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})

    def measure(self, name: str) -> float | None:
        """Return one of :data:`MEASURES`."""
        if name in ("mrr", "hits@10"):
            return None if self.test is None else self.test[name]
        found: float | None = getattr(self, name)
        return found


@dataclass(frozen=True)
class Comparison:
    """The outcome of :func:`nscaching.compare`."""

    out: Path
    data: str | None  #: a name, a folder or a file; None for a graph made in Python
    scoring: str
    samplers: list[str]  #: labels of the contenders, in order
    seeds: list[int]
    options: dict[str, Any]  #: those given for all
    runs: list[RunResult]
    picture: str | None = None  #: file name, where one was drawn
    report: str | None = None  #: file name of the page

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return one row a contender: means over its finished runs, and why others failed."""
        return [self._row(label) for label in self.samplers]

    def _row(self, label: str) -> dict[str, Any]:
        mine = [result for result in self.runs if result.sampler == label]
        done = [result for result in mine if result.error is None]
        row: dict[str, Any] = {"sampler": label, "runs": len(done)}
        for name in MEASURES:
            values = [v for result in done if (v := result.measure(name)) is not None]
            row[name] = statistics.fmean(values) if values else None
            row[f"{name}_spread"] = statistics.stdev(values) if len(values) > 1 else None
        row["extra_parameters"] = done[0].extra_parameters if done else None
        row["best_epoch"] = [result.best_epoch for result in done]
        row["epochs"] = [result.epochs for result in done]
        row["errors"] = [f"seed {r.seed}: {r.error}" for r in mine if r.error is not None]
        return row

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, as ``compare.json`` holds it."""
        return {
            "out": str(self.out),
            **{name: getattr(self, name) for name in _GIVEN},
            "picture": self.picture,
            "report": self.report,
            "rows": self.rows,
            "runs": [asdict(result) for result in self.runs],
        }


def read_comparison(file: Path) -> Comparison:
    """Read ``compare.json`` back."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        return Comparison(
            out=file.parent,
            runs=[RunResult.from_mapping(result) for result in values["runs"]],
            **{name: values[name] for name in _GIVEN},
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file} cannot be read as a comparison ({error}). Remove it and name data and "
            "samplers again; finished runs beside it are kept."
        ) from error
