"""Which of the searched options mattered, read off SMAC's surrogate.

The random forest is fitted to the trials and asked about thousands of random points. *Alone* is
the share of its variance that an option explains by itself, the others averaged out (Sobol's first
order, the main effect of functional ANOVA); *total* adds what it does together with others
(Jansen's estimate). ``fit`` is the cross-validated R² of the forest: the share of the variance of
scores that forests explain which have not seen them. Without any, there is nothing to read off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nscaching.experiments.tune.space import SearchSpace
from nscaching.experiments.tune.trials import SUCCESS, Trial

#: Fewer trials than this say nothing about importance.
FEWEST_TRIALS = 8
_POINTS = 2000
_LEVELS = 25
_FOLDS = 5

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Effect:
    """What one option does to the score, as the surrogate sees it."""

    name: str
    alone: float
    total: float
    values: list[Any]  #: of the option
    score: list[float]  #: mean prediction at each of them

    def as_dict(self, metric: str) -> dict[str, Any]:
        """Return the fields as plain values; the score goes by the name of the metric."""
        fields = asdict(self)
        return {metric if name == "score" else name: value for name, value in fields.items()}


@dataclass(frozen=True)
class Importance:
    """The effects of all options, the most important first."""

    effects: list[Effect]
    fit: float  #: cross-validated R² of the surrogate
    trials: int  #: that the surrogate was fitted to
    epochs: int  #: they were all trained at least so long

    def as_dict(self, metric: str) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {
            "options": {effect.name: effect.as_dict(metric) for effect in self.effects},
            "fit": self.fit,
            "trials": self.trials,
            "epochs": self.epochs,
        }


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

    def forest(rows: Array, targets: Array) -> Any:
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
    sample = np.array([each.get_array() for each in configspace.sample_configuration(_POINTS)])
    again = np.array([each.get_array() for each in configspace.sample_configuration(_POINTS)])
    said = predict(sample)
    variance = max(float(said.var()), 1e-12)
    effects = []
    for column, name in enumerate(configspace.keys()):
        row = next(each for each in space.hyperparameters if each.name == name)
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
        positions = [configspace[name].to_value(level) for level in levels]
        values = [row.value(plain(position)) for position in positions]
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


def _cross_validated_r2(forest: Any, points: Array, scores: Array) -> float:
    """Return the R² of predictions by forests that have not seen the trial; 0 for equal scores."""
    fold = np.arange(len(scores)) % _FOLDS
    predicted = np.empty_like(scores)
    for number in range(_FOLDS):
        held = fold == number
        predicted[held] = forest(points[~held], scores[~held])(points[held])
    variance = float(((scores - scores.mean()) ** 2).sum())
    return 1.0 - float(((scores - predicted) ** 2).sum()) / variance if variance > 0 else 0.0
