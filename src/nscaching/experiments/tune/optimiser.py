"""The optimiser: SMAC or random search, asked and told, and resumed from a trial log.

Against SMAC's own defaults: the first trial is the configuration being tuned, the surrogate learns
from every result (not every eighth), and its trees do not reserve a million leaves each, which made
a proposal take seconds.

Which options mattered is read off SMAC's surrogate. The random forest is fitted to the trials and
asked about thousands of random points. *Alone* is the share of its variance that an option explains
by itself, the others averaged out (Sobol's first order, the main effect of functional ANOVA);
*total* adds what it does together with others (Jansen's estimate). ``fit`` is the cross-validated
R² of the forest: the share of the variance of scores that forests explain which have not seen them.
Without any, there is nothing to read off.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ConfigSpace import (
    Categorical,
    Configuration,
    ConfigurationSpace,
    Float,
    InCondition,
    OrdinalHyperparameter,
)
from smac import HyperparameterOptimizationFacade, MultiFidelityFacade, RandomFacade, Scenario
from smac.acquisition.maximizer import LocalAndSortedRandomSearch, LocalSearch
from smac.facade.abstract_facade import AbstractFacade
from smac.initial_design import SobolInitialDesign
from smac.intensifier.hyperband_utils import determine_HB
from smac.main.config_selector import ConfigSelector
from smac.model.random_forest.random_forest import RandomForest
from smac.runhistory import StatusType, TrialInfo, TrialValue

from nscaching.experiments.tune.space import Hyperparameter, Position, SearchSpace
from nscaching.experiments.tune.trials import (
    SUCCESS,
    Event,
    Proposal,
    Trial,
    TrialResult,
    by_metric,
)
from nscaching.graph.names import Floats

#: Hyperband keeps one in so many at each step, and gives it so many times the epochs.
ETA = 3
#: Share of the trials that are spread evenly before the surrogate is asked; in a short search one
#: per option and one more, but never over half.
_INITIAL_SHARE = 0.25
#: Results at one number of epochs before the surrogate learns from those and not from fewer epochs.
_ENOUGH_RESULTS = 6
#: After so many proposals in a row with known results the space counts as used up.
_SAME_AGAIN = 200
#: Fewer trials than this say nothing about importance.
FEWEST_TRIALS = 8
#: Random points, levels of a hyperparameter, and folds of the cross-validation.
_POINTS, _LEVELS, _FOLDS = 2000, 25, 5

logging.getLogger("smac").setLevel(logging.ERROR)


class Optimiser:
    """SMAC or random search with trials numbered, positions plain and epochs whole."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        method: str,
        trials: int,
        epochs: int,
        min_epochs: int = 0,
        seed: int,
        folder: Path,
    ) -> None:
        self.space, self.method, self.trials, self.epochs = space, method, trials, epochs
        self.asks_again = method == "smac-mf"  #: for one configuration, at more epochs
        budgets: dict[str, Any] = {}
        proposals = trials
        if self.asks_again:
            rungs = hyperband_rungs(trials, epochs, min_epochs)
            budgets = {"min_budget": epochs / ETA**rungs, "max_budget": float(epochs)}
            proposals = trials * (rungs + 1)
        self.scenario = Scenario(
            configuration_space(space, seed),
            deterministic=True,
            crash_cost=1.0,  # a failure costs as much as a score of zero
            n_trials=max(proposals, 2),
            seed=seed,
            name="smac",
            output_directory=folder,
            **budgets,
        )
        self._start()

    def _start(self) -> None:
        self._smac = _facade(self.scenario, self.method, self.trials)
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._open: dict[tuple[int, int], list[TrialInfo]] = {}
        self._results: dict[tuple[int, int], TrialResult] = {}

    @property
    def configurations(self) -> int:
        """How many different configurations it has proposed."""
        return len(self._numbers)

    def ask(self) -> Proposal | None:
        """Return the next proposal, or None when the space has nothing new.

        Different positions can mean the same configuration (all low ones of a temperature are
        zero). What is known, or being trained, is not proposed again.
        """
        for _ in range(_SAME_AGAIN):
            try:
                info = self._smac.ask()
            except StopIteration:
                return None
            active = dict(info.config)
            positions = {name: plain(active[name]) for name in self.space if name in active}
            epochs = self.epochs if info.budget is None else max(1, round(info.budget))
            number = self._numbers.setdefault(self._identity(positions), len(self._numbers) + 1)
            proposal = Proposal(number, positions, epochs, info.budget)
            if proposal.key in self._results:
                self._tell(info, self._results[proposal.key])
                continue
            known = proposal.key in self._open
            self._open.setdefault(proposal.key, []).append(info)
            if not known:
                return proposal
        return None

    def _identity(self, positions: dict[str, Position]) -> tuple[Any, ...]:
        return tuple(self.space.options(positions).items())

    def tell(self, proposal: Proposal, result: TrialResult) -> None:
        """Take a result in."""
        self._results[proposal.key] = result
        for info in self._open.pop(proposal.key):
            self._tell(info, result)

    def _tell(self, info: TrialInfo, result: TrialResult) -> None:
        status = StatusType.SUCCESS if result.status == SUCCESS else StatusType.CRASHED
        cost = 1.0 if result.score is None else 1.0 - result.score  # a failure is as bad as 0
        value = TrialValue(cost=cost, time=result.seconds, status=status)
        self._smac.tell(info, value, save=False)

    def replay(self, events: list[Event]) -> bool:
        """Ask and tell all of a log again; return whether every proposal came out the same.

        They do with the same versions of SMAC and its parts on a machine that computes alike. If
        not, a fresh optimiser is told the results without having asked: nothing that was trained
        is lost, but what follows may differ from an unbroken search.
        """
        for proposal, result in events:
            if result is not None:
                self.tell(proposal, result)
            elif self.ask() != proposal:
                self._take_in(events)
                return False
        return True

    def _take_in(self, events: list[Event]) -> None:
        self._start()
        seed = self._smac.ask().seed  # the one seed of all proposals is known only from one
        self._start()
        for proposal, result in events:
            if result is not None:
                self.tell(proposal, result)
                continue
            config = Configuration(self.scenario.configspace, values=proposal.positions)
            self._numbers[self._identity(proposal.positions)] = proposal.trial
            self._open[proposal.key] = [TrialInfo(config, seed=seed, budget=proposal.budget)]

    def save(self) -> None:
        """Write SMAC's own files, which other tools read."""
        self._smac.optimizer.save()


def hyperband_rungs(trials: int, epochs: int, min_epochs: int = 0) -> int:
    """Return how often the epochs are divided: as often as one round of Hyperband has trials for.

    With too few trials a round would end before any of them had earned all epochs.
    """
    rungs = 0
    while max(1, min_epochs) * (more := ETA ** (rungs + 1)) <= epochs:
        plan = determine_HB(1.0, float(more), ETA)
        if sum(stages[0] for stages in plan["n_configs_in_stage"].values()) > trials:
            break
        rungs += 1
    return rungs


# SMAC, put together -------------------------------------------------------------------------------


def configuration_space(space: SearchSpace, seed: int) -> ConfigurationSpace:
    """Return a space as ConfigSpace knows it, with the conditions between hyperparameters."""
    built = ConfigurationSpace(seed=seed)
    built.add([_hyperparameter(each) for each in space.values()])
    for each in space.values():
        for parent, values in (each.when or {}).items():
            if parent in space:
                there = [value for value in values if built[parent].legal_value(value)]
                built.add(InCondition(built[each.name], built[parent], there))
    return built


def _hyperparameter(row: Hyperparameter) -> Any:
    if row.is_number:
        return Float(row.name, (0.0, 1.0), default=row.position(row.first))
    if row.scale == "grid":
        return OrdinalHyperparameter(row.name, row.values, default_value=row.first)
    return Categorical(row.name, list(row.values), default=row.first)


def surrogate(configspace: ConfigurationSpace, seed: int, log_cost: bool) -> RandomForest:
    """Return SMAC's random forest with the settings of its facade."""
    return RandomForest(
        configspace=configspace,
        log_y=log_cost,
        n_trees=10,
        ratio_features=1.0,
        min_samples_split=2,
        min_samples_leaf=1,
        max_leaf_nodes=4096,
        n_jobs=1,
        seed=seed,
    )


class FirstThenSobol(SobolInitialDesign):
    """The configuration being tuned, then points spread evenly."""

    def select_configurations(self) -> list[Configuration]:
        """Return them; SMAC itself selects nothing where no other point is wanted."""
        first = self._configspace.get_default_configuration()
        first.origin = "Initial Design: first"
        return [first, *(each for each in super().select_configurations() if each != first)]


class OrderedLocalSearch(LocalSearch):
    """SMAC's local search from the same points in the same order, in every process.

    SMAC takes them from a set, whose order follows the random hashes of a Python process: the same
    seed would propose other points after a restart.
    """

    def _get_init_points_from_previous_configs(self, *given: Any, **named: Any) -> Any:
        points = super()._get_init_points_from_previous_configs(*given, **named)
        return sorted(points, key=lambda point: tuple(np.nan_to_num(point.get_array(), nan=-1.0)))


def _facade(scenario: Scenario, method: str, trials: int) -> AbstractFacade:
    """Return a fresh optimiser; nothing of an earlier one is read."""
    common: dict[str, Any] = {"overwrite": True, "logging_level": False}
    if method == "random":
        return RandomFacade(scenario, None, **common)
    facade = MultiFidelityFacade if method == "smac-mf" else HyperparameterOptimizationFacade
    configspace, seed = scenario.configspace, scenario.seed
    initial = max(1, int(_INITIAL_SHARE * trials), min(trials // 2, len(configspace) + 1))
    selector: dict[str, Any] = {"retrain_after": 1}
    if method == "smac-mf":
        assert scenario.min_budget is not None
        assert scenario.max_budget is not None
        plan = determine_HB(scenario.min_budget, scenario.max_budget, ETA)
        initial = plan["n_configs_in_stage"][0][0]
        selector = {"min_trials": _ENOUGH_RESULTS}
    maximizer = LocalAndSortedRandomSearch(configspace, challengers=10_000, seed=seed)
    maximizer._local_search = OrderedLocalSearch(
        configspace, max_steps=None, n_steps_plateau_walk=10, seed=seed
    )
    return facade(
        scenario,
        None,
        model=surrogate(configspace, seed, log_cost=True),
        acquisition_maximizer=maximizer,
        initial_design=FirstThenSobol(scenario, n_configs=initial - 1, max_ratio=1.0),
        config_selector=ConfigSelector(scenario, **selector),
        **common,
    )


def plain(value: Any) -> Position:
    """Return a value of ConfigSpace as JSON can hold it."""
    if isinstance(value, np.generic):
        made: Position = value.item()
        return made
    return value if isinstance(value, str | int) else float(value)


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
        options = {effect.name: by_metric(asdict(effect), metric) for effect in self.effects}
        return {"options": options, "fit": self.fit, "trials": self.trials, "epochs": self.epochs}


def measure(space: SearchSpace, trials: Sequence[Trial], seed: int) -> Importance | str:
    """Return the importance of every option, or a sentence on why it cannot be told.

    Trials of the most epochs count, as many of them as there must be.
    """
    done = [trial for trial in trials if trial.status == SUCCESS]
    if len(done) < FEWEST_TRIALS:
        return (
            "There is no importance of hyperparameters: there are fewer than "
            f"{FEWEST_TRIALS} finished trials of equal length."
        )
    epochs = sorted(trial.asked_epochs for trial in done)[-FEWEST_TRIALS]
    chosen = [trial for trial in done if trial.asked_epochs >= epochs]
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
            f"There is no importance of hyperparameters: a model of the {len(chosen)} trials "
            f"predicts others no better than their mean does (cross-validated R² {fit:.2f})."
        )
    predict = forest(points, scores)
    sample, again = (
        np.array([each.get_array() for each in configspace.sample_configuration(_POINTS)])
        for _ in range(2)
    )
    said = predict(sample)
    variance = max(float(said.var()), 1e-12)
    effects = []

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
        values = [space[name].value(plain(configspace[name].to_value(level))) for level in levels]
        alone = min(total, float(np.var(marginal)) / variance)  # both are estimates
        effects.append(Effect(name, alone, total, values, marginal))
    effects.sort(key=lambda effect: -effect.total)
    return Importance(effects, fit, len(chosen), epochs)


def _cross_validated_r2(forest: Any, points: Floats, scores: Floats) -> float:
    """Return the R² of predictions by forests that have not seen the trial; 0 for equal scores."""
    fold = np.arange(len(scores)) % _FOLDS
    predicted = np.empty_like(scores)
    for number in range(_FOLDS):
        held = fold == number
        predicted[held] = forest(points[~held], scores[~held])(points[held])
    variance = float(((scores - scores.mean()) ** 2).sum())
    return 1.0 - float(((scores - predicted) ** 2).sum()) / variance if variance > 0 else 0.0
