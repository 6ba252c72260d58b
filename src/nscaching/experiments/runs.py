"""One configuration as a run folder: trained, resumed or known from before; numbers and curve."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.graph import KnowledgeGraph
from nscaching.report.experiment_pages import Band
from nscaching.runs.api import resumed_config, train
from nscaching.runs.run import Run
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.diagnostics import training_seconds

_SUMMARY = ("seconds", "epochs", "best_epoch", "extra_parameters", "device")


@dataclass(frozen=True)
class RunResult:
    """What one run gave, or why it failed."""

    sampler: str  #: label of the configuration
    seed: int
    run: str  #: folder, below that of the experiment
    config: str = ""  #: digest of the configuration, by which a finished run is known again
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
    graph: str | None = None  #: digest of the graph; runs with the same one rank the same facts

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> RunResult:
        """Read back the fields of a record."""
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})

    def metric(self, name: str) -> float | None:
        """Return a ranking metric on test, or another number of this result."""
        if name == "mrr" or name.startswith("hits@"):
            return None if self.test is None else self.test[name]
        found: float | None = getattr(self, name)
        return found


def finished(folder: RunFolder, settings: TrainConfig, known: RunResult | None) -> bool:
    """Tell whether what is known of a run is still what is asked for."""
    if known is None or known.error is not None or not folder.is_run():
        return False
    return known.config == digest(resumed_config(folder, changes(folder, settings)))


def make_run(
    source: KnowledgeGraph | str | Path | None,
    folder: RunFolder,
    settings: TrainConfig,
    options: Mapping[str, Any],
    *,
    resume: bool,
    overwrite: bool,
    progress: Progress,
) -> Run:
    """Train one run, or resume it; ``options`` are those that gave the ``settings``."""
    how: dict[str, Any] = {"out": folder.path, "overwrite": overwrite, "progress": progress}
    how["probabilities"] = False  # nobody asks most of these runs
    if resume and folder.is_run():
        return train(source, resume=True, **how, **changes(folder, settings))
    return train(source, remarks=False, **how, **options)  # samplers share their options


def changes(folder: RunFolder, wanted: TrainConfig) -> dict[str, Any]:
    """Return what is asked for now and differs from what a run was started with."""
    stored, now = folder.read_config().as_dict(), wanted.as_dict()
    return {name: now[name] for name in now if name != "data" and now[name] != stored[name]}


def digest(config: TrainConfig) -> str:
    """Return a short name of a configuration, by which a finished run is known again."""
    return hashlib.sha256(config.as_yaml().encode()).hexdigest()[:16]


def measured(blank: RunResult, run: Run) -> RunResult:
    """Return the numbers of a run that has just been trained."""
    graph, summary, folder = run.graph, run.summary, run.folder
    assert folder is not None
    splits = len(graph.valid) and len(graph.test)
    accuracy = run.classification("test").accuracy if splits else math.nan
    return replace(
        blank,
        config=digest(run.config),
        test=summary["test"],
        valid=summary["valid"],
        accuracy=None if math.isnan(accuracy) else accuracy,
        seconds_per_epoch=seconds_per_epoch(folder.read_metrics(), run.config.pretrain_epochs),
        graph=graph.fingerprint[:16],
        **{name: summary[name] for name in _SUMMARY},
    )


# Learning curves ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """Validations of one run in order, each array of shape (n,)."""

    epochs: np.ndarray
    seconds: np.ndarray  #: of training until then, validations not counted
    mrr: np.ndarray
    hits_at_10: np.ndarray


def read_curve(lines: Iterable[Mapping[str, Any]]) -> Curve:
    """Read the validations of a run from the lines of its ``metrics.jsonl``."""
    trained = dict(training_seconds(lines := list(lines)))
    points = [
        (line["epoch"], trained.get(line["epoch"], 0.0), line["mrr"], line["hits@10"])
        for line in lines
        if line.get("event") == "evaluation" and line.get("split") == "valid"
    ]
    return Curve(*np.array(points, dtype=np.float64).reshape(-1, 4).T)


def seconds_per_epoch(lines: Iterable[Mapping[str, Any]], pretrain_epochs: int) -> float | None:
    """Return the mean epoch of the sampler itself; its first, which may compile, is not counted."""
    ends = training_seconds(lines)
    if not ends:
        return None
    own = [end for end in ends if end[0] > pretrain_epochs]
    if len(own) < 2:
        return ends[-1][1] / ends[-1][0]
    (first, start), (last, end) = own[0], own[-1]
    return (end - start) / (last - first)


def band(label: str, curves: Sequence[Curve]) -> Band | None:
    """Bring the runs of several seeds together, at the epochs that all of them validated."""
    curves = [curve for curve in curves if len(curve.epochs)]
    common = [set(curve.epochs.tolist()) for curve in curves]
    if not common or not (shared := sorted(set.intersection(*common))):
        return None
    stacked = {
        name: np.stack([getattr(each, field)[np.isin(each.epochs, shared)] for each in curves])
        for name, field in {"mrr": "mrr", "hits@10": "hits_at_10", "seconds": "seconds"}.items()
    }
    seconds = stacked.pop("seconds").mean(0)
    mean, low, high = (
        {name: over(values, axis=0) for name, values in stacked.items()}
        for over in (np.mean, np.min, np.max)
    )
    return Band(label, np.array(shared), seconds, mean, low, high)
