"""SMAC put together for our spaces; the only file that imports it, beside ``runners.py``.

``build`` gives an optimiser that is asked and told. Against SMAC's own defaults: the first trial is
the paper's, the surrogate learns from every answer (not every eighth), and its trees do not reserve
a million leaves each, which made a question take seconds.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ConfigSpace import Configuration, ConfigurationSpace
from smac import HyperparameterOptimizationFacade, MultiFidelityFacade, RandomFacade, Scenario
from smac.acquisition.maximizer import LocalAndSortedRandomSearch, LocalSearch
from smac.facade.abstract_facade import AbstractFacade
from smac.initial_design import SobolInitialDesign
from smac.intensifier.hyperband_utils import determine_HB
from smac.main.config_selector import ConfigSelector
from smac.model.random_forest.random_forest import RandomForest

from nscaching.experiments.tune.space import SearchSpace

#: Hyperband keeps one in so many at each step, and gives it so many times the epochs.
ETA = 3
#: Share of the trials that are spread evenly before the surrogate is asked; in a short search one
#: an option and one more, but never over half.
_INITIAL_SHARE = 0.25
#: Answers at one number of epochs before the surrogate learns from those and not from fewer epochs.
_ENOUGH_ANSWERS = 6

logging.getLogger("smac").setLevel(logging.ERROR)


class FirstThenSobol(SobolInitialDesign):
    """The default point, which is the paper's first trial, then points spread evenly."""

    def _select_configurations(self) -> list[Configuration]:
        first = self._configspace.get_default_configuration()
        return [first, *super()._select_configurations()]


class OrderedLocalSearch(LocalSearch):
    """SMAC's local search from the same points in the same order, in every process.

    SMAC takes them from a set, whose order follows the random hashes of a Python process: the same
    seed would ask other questions after a restart.
    """

    def _get_init_points_from_previous_configs(self, *given: Any, **named: Any) -> Any:
        points = super()._get_init_points_from_previous_configs(*given, **named)
        return sorted(points, key=lambda point: tuple(point.get_array()))


def acquisition_maximizer(scenario: Scenario) -> LocalAndSortedRandomSearch:
    """Return the maximizer of SMAC's facade with an ordered local search."""
    configspace, seed = scenario.configspace, scenario.seed
    maximizer = LocalAndSortedRandomSearch(configspace, challengers=10_000, seed=seed)
    maximizer._local_search = OrderedLocalSearch(
        configspace, max_steps=None, n_steps_plateau_walk=10, seed=seed
    )
    return maximizer


def configuration_space(space: SearchSpace, seed: int) -> ConfigurationSpace:
    """Return a space as ConfigSpace knows it."""
    built = ConfigurationSpace(seed=seed)
    built.add([parameter.hyperparameter() for parameter in space.parameters])
    return built


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


def make_scenario(
    space: SearchSpace,
    *,
    method: str,
    trials: int,
    epochs: int,
    min_epochs: int,
    seed: int,
    folder: Path,
) -> Scenario:
    """Return the frame of a search; failures cost as much as a score of zero."""
    budgets: dict[str, Any] = {}
    questions = trials
    if method == "smac-mf":
        rungs = hyperband_rungs(trials, epochs, min_epochs)
        budgets = {"min_budget": epochs / ETA**rungs, "max_budget": float(epochs)}
        questions = trials * (rungs + 1)
    return Scenario(
        configuration_space(space, seed),
        deterministic=True,
        crash_cost=1.0,
        n_trials=max(questions, 2),
        seed=seed,
        name="smac",
        output_directory=folder,
        **budgets,
    )


def build(scenario: Scenario, method: str, trials: int) -> AbstractFacade:
    """Return a fresh optimiser; nothing of an earlier one is read."""
    common: dict[str, Any] = {"overwrite": True, "logging_level": False}
    if method == "random":
        return RandomFacade(scenario, None, **common)
    facade = MultiFidelityFacade if method == "smac-mf" else HyperparameterOptimizationFacade
    options = len(scenario.configspace)
    initial = max(1, int(_INITIAL_SHARE * trials), min(trials // 2, options + 1))
    selector: dict[str, Any] = {"retrain_after": 1}
    if method == "smac-mf":
        assert scenario.min_budget is not None
        assert scenario.max_budget is not None
        plan = determine_HB(scenario.min_budget, scenario.max_budget, ETA)
        initial = plan["n_configs_in_stage"][0][0]
        selector = {"min_trials": _ENOUGH_ANSWERS}
    return facade(
        scenario,
        None,
        model=surrogate(scenario.configspace, scenario.seed, log_cost=True),
        acquisition_maximizer=acquisition_maximizer(scenario),
        initial_design=FirstThenSobol(scenario, n_configs=initial - 1, max_ratio=1.0),
        config_selector=ConfigSelector(scenario, **selector),
        **common,
    )


def hyperband_rungs(trials: int, epochs: int, min_epochs: int = 0) -> int:
    """Return how often the epochs are divided: as often as one round of Hyperband has trials for.

    With too few trials a round would end before any of them had earned all epochs.
    """
    rungs = 0
    fewest = max(1, min_epochs)
    while fewest * ETA ** (rungs + 1) <= epochs and _settings_of_a_round(rungs + 1) <= trials:
        rungs += 1
    return rungs


def _settings_of_a_round(rungs: int) -> int:
    plan = determine_HB(1.0, float(ETA**rungs), ETA)
    return sum(stages[0] for stages in plan["n_configs_in_stage"].values())
