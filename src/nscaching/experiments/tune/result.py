"""What a search has found, in Python, as files and as JSON: its best, how it rose, what mattered.

Which options mattered is read off SMAC's surrogate. The random forest is fitted to the trials and
asked about thousands of random points. *Alone* is the share of its variance that an option explains
by itself, the others averaged out (Sobol's first order, the main effect of functional ANOVA);
*total* adds what it does together with others (Jansen's estimate). ``fit`` is the cross-validated
R² of the forest: the share of the variance of scores that forests explain which have not seen them.
Without any, there is nothing to read off.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.artefacts.files import write_text
from nscaching.evaluation.metrics import (
    Floats,
    Interval,
    bootstrap_means,
    interval,
    paired_difference,
    within_noise,
)
from nscaching.experiments.tune.objective import Config, Metric, Objective
from nscaching.experiments.tune.space import SearchSpace
from nscaching.experiments.tune.trials import SUCCESS, Proposal, SearchFolder, Trial, TrialResult

#: Fewer trials than this say nothing about importance.
FEWEST_TRIALS = 8
#: Random points, levels of a hyperparameter, and folds of the cross-validation.
_POINTS, _LEVELS, _FOLDS = 2000, 25, 5


@dataclass(frozen=True)
class CurvePoint:
    """Where a search stood after a result."""

    trials: int  #: different configurations so far
    epochs: int  #: trained so far, in all
    seconds: float  #: spent training so far, over all workers
    top1: float  #: the best score of a trial
    top3: float | None  #: the mean of the three best trials, once there are three


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
        trials = [_by_metric(asdict(trial), key) for trial in self.trials]
        for trial in trials:
            del trial["positions"]
        return {
            "out": str(self.folder.path),
            "method": self.method,
            "space": self.space,
            "metric": key,
            "trials": trials,
            "failed": sum(trial.score is None for trial in self.trials),
            "best": {
                "trial": self.best.number,
                key: self.best.score,
                "best_epoch": self.best.best_epoch,
                "config": self.best.config,
                "file": str(self.folder.best),
                "run": self.best.run,
            },
            "curve": [asdict(point) for point in self.curve],
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


def _by_metric(fields: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return fields with the score under the name of the metric."""
    return {metric if name == "score" else name: value for name, value in fields.items()}


# What mattered ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """What one option does to the score, as the surrogate sees it."""

    name: str
    alone: float
    total: float
    values: list[Any]  #: of the option
    score: list[float]  #: mean prediction at each of them


@dataclass(frozen=True)
class Importance:
    """The effects of all options, the most important first."""

    effects: list[Effect]
    fit: float  #: cross-validated R² of the surrogate
    trials: int  #: that the surrogate was fitted to
    epochs: int  #: they were all trained at least so long

    def as_dict(self, metric: str) -> dict[str, Any]:
        """Return the fields as plain values; scores go by the name of the metric."""
        options = {effect.name: _by_metric(asdict(effect), metric) for effect in self.effects}
        known = {"fit": self.fit, "trials": self.trials, "epochs": self.epochs}
        return {"options": options, **known}


def measure(space: SearchSpace, trials: Sequence[Trial], seed: int) -> Importance | str:
    """Return the importance of every option, or a sentence on why it cannot be told."""
    from ConfigSpace import Configuration

    from nscaching.experiments.tune.optimiser import configuration_space, plain, surrogate

    chosen, epochs = _comparable(trials)
    if len(chosen) < FEWEST_TRIALS:
        return (
            "Which options mattered cannot be told: there are fewer than "
            f"{FEWEST_TRIALS} finished trials of equal length."
        )
    configspace = configuration_space(space, seed)
    points = np.array([Configuration(configspace, trial.positions).get_array() for trial in chosen])
    scores = np.array([trial.score for trial in chosen], dtype=np.float64)

    def forest(rows: Floats, targets: Floats) -> Any:
        model = surrogate(configspace, seed, log_cost=False)
        model.train(rows, targets.reshape(-1, 1))
        return lambda asked: model.predict(asked)[0].ravel()

    fit = _cross_validated_r2(forest, points, scores)
    if fit <= 0:
        return (
            f"Which options mattered cannot be told: a model of the {len(chosen)} trials predicts "
            f"others no better than their mean does (cross-validated R² {fit:.2f})."
        )
    predict = forest(points, scores)
    sample, again = (
        np.array([each.get_array() for each in configspace.sample_configuration(_POINTS)])
        for _ in range(2)
    )
    said = predict(sample)
    variance = max(float(said.var()), 1e-12)
    effects = []
    rows = {row.name: row for row in space.hyperparameters}
    for column, name in enumerate(configspace.keys()):
        changed = sample.copy()
        changed[:, column] = again[:, column]
        total = float(((said - predict(changed)) ** 2).mean()) / (2 * variance)
        levels = np.unique(sample[np.isfinite(sample[:, column]), column])
        if len(levels) > _LEVELS:
            levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
        marginal = []
        for level in levels:
            changed[:, column] = level
            marginal.append(float(predict(changed).mean()))
        values = [rows[name].value(plain(configspace[name].to_value(level))) for level in levels]
        alone = min(total, float(np.var(marginal)) / variance)  # both are estimates
        effects.append(Effect(name, alone, total, values, marginal))
    effects.sort(key=lambda effect: -effect.total)
    return Importance(effects, fit, len(chosen), epochs)


def _comparable(trials: Sequence[Trial]) -> tuple[list[Trial], int]:
    """Return the trials with the most epochs of which there are enough, and those epochs."""
    done = [trial for trial in trials if trial.status == SUCCESS]
    for epochs in sorted({trial.asked_epochs for trial in done}, reverse=True):
        chosen = [trial for trial in done if trial.asked_epochs >= epochs]
        if len(chosen) >= FEWEST_TRIALS:
            return chosen, epochs
    return [], 0


def _cross_validated_r2(forest: Any, points: Floats, scores: Floats) -> float:
    """Return the R² of predictions by forests that have not seen the trial; 0 for equal scores."""
    fold = np.arange(len(scores)) % _FOLDS
    predicted = np.empty_like(scores)
    for number in range(_FOLDS):
        held = fold == number
        predicted[held] = forest(points[~held], scores[~held])(points[held])
    variance = float(((scores - scores.mean()) ** 2).sum())
    return 1.0 - float(((scores - predicted) ** 2).sum()) / variance if variance > 0 else 0.0
