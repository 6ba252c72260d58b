"""The optimiser: SMAC or random search, asked and told, and resumed from a trial log.

Against SMAC's own defaults: the first trial is the configuration being tuned, the surrogate learns
from every result (not every eighth), and its trees do not reserve a million leaves each, which made
a proposal take seconds.
"""

from __future__ import annotations

import logging
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
from nscaching.experiments.tune.trials import SUCCESS, Event, Proposal, TrialResult

#: Hyperband keeps one in so many at each step, and gives it so many times the epochs.
ETA = 3
#: Share of the trials that are spread evenly before the surrogate is asked; in a short search one
#: per option and one more, but never over half.
_INITIAL_SHARE = 0.25
#: Results at one number of epochs before the surrogate learns from those and not from fewer epochs.
_ENOUGH_RESULTS = 6
#: After so many proposals in a row with known results the space counts as used up.
_SAME_AGAIN = 200

logging.getLogger("smac").setLevel(logging.ERROR)


class ReplayDiffers(Exception):
    """The optimiser does not propose again what the log says it proposed."""


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
        budgets: dict[str, Any] = {}
        proposals = trials
        if method == "smac-mf":
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

    @property
    def asks_again(self) -> bool:
        """Whether it may propose one configuration more than once, at more epochs."""
        return self.method == "smac-mf"

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
            positions = {n: plain(active[n]) for n in self.space.names() if n in active}
            epochs = self.epochs if info.budget is None else max(1, round(info.budget))
            proposal = Proposal(self._number(positions), positions, epochs, info.budget)
            if proposal.key in self._results:
                self._tell(info, self._results[proposal.key])
                continue
            known = proposal.key in self._open
            self._open.setdefault(proposal.key, []).append(info)
            if not known:
                return proposal
        return None

    def _number(self, positions: dict[str, Position]) -> int:
        return self._numbers.setdefault(self._identity(positions), len(self._numbers) + 1)

    def _identity(self, positions: dict[str, Position]) -> tuple[Any, ...]:
        return tuple(self.space.options(positions).items())

    def tell(self, proposal: Proposal, result: TrialResult) -> None:
        """Take a result in."""
        self._results[proposal.key] = result
        for info in self._open.pop(proposal.key):
            self._tell(info, result)

    def _tell(self, info: TrialInfo, result: TrialResult) -> None:
        status = StatusType.SUCCESS if result.status == SUCCESS else StatusType.CRASHED
        value = TrialValue(cost=result.cost, time=result.seconds, status=status)
        self._smac.tell(info, value, save=False)

    def replay(self, events: list[Event]) -> bool:
        """Ask and tell all of a log again; return whether every proposal came out the same.

        They do with the same versions of SMAC and its parts on a machine that computes alike. If
        not, a fresh optimiser is told the results without having asked: nothing that was trained
        is lost, but what follows may differ from an unbroken search.
        """
        try:
            for proposal, result in events:
                if result is not None:
                    self.tell(proposal, result)
                elif self.ask() != proposal:
                    raise ReplayDiffers
        except ReplayDiffers:
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
    built.add([_hyperparameter(each) for each in space.hyperparameters])
    for each in space.hyperparameters:
        for parent, values in (each.when or {}).items():
            if parent in space.names():
                there = [value for value in values if built[parent].legal_value(value)]
                built.add(InCondition(built[each.name], built[parent], there))
    return built


def _hyperparameter(row: Hyperparameter) -> Any:
    if row.is_number:
        return Float(row.name, (0.0, 1.0), default=float(row.position(row.first)))
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
