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
from nscaching.training.folder import training_seconds

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
    resuming = resume and folder.is_run()
    return train(
        source,
        out=folder.path,
        resume=resuming,
        overwrite=overwrite,
        progress=progress,
        **(changes(folder, settings) if resuming else options),
    )


def changes(folder: RunFolder, wanted: TrainConfig) -> dict[str, Any]:
    """Return what is asked for now and differs from what a run was started with."""
    stored = folder.read_config().as_dict()
    return {
        name: value
        for name, value in wanted.as_dict().items()
        if name != "data" and value != stored[name]
    }


def digest(config: TrainConfig) -> str:
    """Return a short name of a configuration, by which a finished run is known again."""
    return hashlib.sha256(config.as_yaml().encode()).hexdigest()[:16]


def measured(blank: RunResult, run: Run) -> RunResult:
    """Return the numbers of a run that has just been trained."""
    graph, summary, folder = run.graph, run.summary, run.folder
    assert folder is not None
    accuracy = None
    if len(graph.valid) and len(graph.test):
        accuracy = run.classification("test").accuracy
    return replace(
        blank,
        config=digest(run.config),
        test=summary["test"],
        valid=summary["valid"],
        accuracy=None if accuracy is None or math.isnan(accuracy) else accuracy,
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
    points, trained = [], dict(training_seconds(lines := list(lines)))
    for line in lines:
        if line.get("event") == "evaluation" and line.get("split") == "valid":
            at = line["epoch"]
            points.append((at, trained.get(at, 0.0), line["mrr"], line["hits@10"]))
    columns = np.array(points, dtype=np.float64).reshape(-1, 4).T
    return Curve(*columns)


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
    places = [np.isin(curve.epochs, shared) for curve in curves]
    stacked = {
        name: np.stack([getattr(c, field)[at] for c, at in zip(curves, places, strict=True)])
        for name, field in {"mrr": "mrr", "hits@10": "hits_at_10", "seconds": "seconds"}.items()
    }
    seconds = stacked.pop("seconds").mean(0)
    return Band(
        label,
        np.array(shared),
        seconds,
        {name: values.mean(0) for name, values in stacked.items()},
        {name: values.min(0) for name, values in stacked.items()},
        {name: values.max(0) for name, values in stacked.items()},
    )
