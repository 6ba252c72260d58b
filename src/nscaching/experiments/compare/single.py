"""One run of several: known from before, gone on with, or made; a failure is a result too."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nscaching.errors import NSCachingError, TrainingInterrupted
from nscaching.experiments.compare.curves import seconds_per_epoch
from nscaching.experiments.compare.results import RunResult
from nscaching.graph import KnowledgeGraph
from nscaching.runs.api import resumed_config, train
from nscaching.runs.run import Run
from nscaching.training import Progress, RunFolder, TrainConfig


def finished(folder: RunFolder, settings: TrainConfig, known: RunResult | None) -> RunResult | None:
    """Return what is known of a run where that is still what is asked for."""
    if known is None or known.error is not None or not folder.is_run():
        return None
    wanted = resumed_config(folder, changes(folder, settings))
    return known if known.config == digest(wanted) else None


def make_run(
    source: KnowledgeGraph | str | Path | None,
    folder: RunFolder,
    settings: TrainConfig,
    options: Mapping[str, Any],
    *,
    blank: RunResult,
    resume: bool,
    overwrite: bool,
    progress: Progress,
) -> RunResult:
    """Train one run, or go on with it; ``options`` are those that gave the ``settings``.

    A run that fails gives a result that says why; one that is interrupted raises.
    """
    going_on = resume and folder.is_run()
    try:
        run = train(
            source,
            out=folder.path,
            resume=going_on,
            overwrite=overwrite,
            progress=progress,
            **(changes(folder, settings) if going_on else options),
        )
        return _measured(blank, run)
    except TrainingInterrupted:
        raise
    except (NSCachingError, MemoryError, RuntimeError) as error:  # torch's own: out of memory
        reason = str(error) or "There is not enough memory for it."
        progress.say(f"{blank.sampler}, seed {blank.seed}, failed: {reason}")
        return replace(blank, error=reason)


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


def _measured(blank: RunResult, run: Run) -> RunResult:
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
        **{
            name: summary[name]
            for name in ("seconds", "epochs", "best_epoch", "extra_parameters", "device")
        },
    )
