"""The spaces: the paper's ranges, its first trial, exact zeros, and what a user fixes."""

import numpy as np
import pytest

from nscaching import NodeConfig, TrainConfig, UserError
from nscaching.experiments.tune.optimiser import configuration_space
from nscaching.experiments.tune.space import (
    GRAPH_SPACES,
    NODE_SPACES,
    SPACES,
    ZERO_SHARE,
    Hyperparameter,
    SearchSpace,
)


def build(name="sampler", fixed=None, **base):
    return SearchSpace.build(name, TrainConfig(**base), fixed or {})


@pytest.mark.parametrize("name", GRAPH_SPACES)
def test_every_point_of_a_space_is_a_valid_configuration(name):
    space = build(name)
    for point in configuration_space(space, 0).sample_configuration(200):
        options = space.options({key: _plain(point[key]) for key in space})
        TrainConfig.from_mapping({**options, "sampler": SPACES[name].sampler or "all"}, "test")


@pytest.mark.parametrize("name", NODE_SPACES)
def test_every_point_of_a_space_of_nodes_is_valid_too(name):
    space = SearchSpace.build(name, NodeConfig(), {})
    for point in configuration_space(space, 0).sample_configuration(200):
        options = space.options({key: _plain(point[key]) for key in space})
        NodeConfig.from_mapping({**options, "sampler": SPACES[name].sampler}, "test")


def test_the_space_of_nodes_starts_at_the_base():
    base = NodeConfig(negatives=2, alpha2=0.5, alpha3=50.0, cache_size=40, fresh="uniform")
    space = SearchSpace.build("nodes+", base, {})
    first = {each.name: each.first for each in space.values()}
    assert (first["negatives"], first["alpha2"], first["fresh"]) == (2, 0.5, "uniform")
    assert (first["alpha3"], first["cache_size"]) == (50.0, 40)  # they join the space
    rows = {each.name: each for each in space.values()}
    assert rows["cache_size"].values == (10, 30, 40, 50, 70, 90)
    assert rows["alpha3"].values == (0.01, 50.0)


def test_the_first_trial_is_the_configuration_that_is_tuned():
    space = build(alpha2=0.12345, alpha3=float("inf"), cache_size=14)
    default = configuration_space(space, 0).get_default_configuration()
    first = space.options({key: _plain(default[key]) for key in space})
    assert first == {
        "alpha1": 0.0,
        "alpha2": 0.12345,
        "alpha3": float("inf"),
        "cache_size": 14,
        "candidates": 50,
    }


def test_ranges_are_the_papers_with_zero_reachable():
    space = build()
    points = configuration_space(space, 0).sample_configuration(4000)
    rows = [space.options({key: _plain(point[key]) for key in space}) for point in points]
    for name, high in (("alpha1", 1), ("alpha2", 100), ("alpha3", 100)):
        values = np.array([row[name] for row in rows])
        assert values.min() == 0
        assert values.max() == pytest.approx(high, rel=0.01)
        assert abs((values == 0).mean() - ZERO_SHARE) < 0.03
    positive = np.array([row["alpha3"] for row in rows if row["alpha3"] > 0])
    assert np.median(positive) == pytest.approx(1.0, rel=0.3)  # 0.01 to 100 on a log scale
    for name in ("cache_size", "candidates"):
        assert {row[name] for row in rows} == {10, 30, 50, 70, 90}


@pytest.mark.parametrize(
    "parameter", SPACES["sampler"].hyperparameters[:3], ids=lambda row: row.name
)
def test_a_position_gives_its_value_back(parameter):
    for value in (0.0, 0.25, 1.0):
        assert parameter.value(parameter.position(value)) == pytest.approx(value, rel=1e-3)
    assert parameter.value(1.0) == parameter.values[1]


def test_what_is_given_is_not_searched():
    assert list(build(fixed={"alpha1": 0.0, "dim": 8})) == [
        "alpha2",
        "alpha3",
        "cache_size",
        "candidates",
    ]
    every = dict.fromkeys(("alpha1", "alpha2", "alpha3", "cache_size", "candidates"), 1)
    with pytest.raises(UserError, match="nothing is left"):
        build(fixed=every)


def test_the_model_space_has_margin_or_l2_as_the_loss_has_it():
    assert list(build("model", scoring="simple")) == ["dim", "lr", "batch_size", "l2"]
    assert list(build("model", scoring="transe"))[-1] == "margin"
    assert list(build("model", scoring="simple", loss="margin"))[-1] == "margin"


def test_the_model_space_starts_at_the_base():
    base = {"dim": 200, "lr": 0.02, "batch_size": 1024, "l2": 0.05}
    first = {each.name: each.first for each in build("model", **base).values()}
    assert first == base


def test_the_model_space_of_a_small_graph_has_small_batches():
    *_, batches, _ = build("model", batch_size=64).values()
    assert (batches.first, batches.values) == (64, (64, 128, 256))
    *_, batches, _ = build("model", batch_size=4096).values()
    assert (batches.first, batches.values) == (4096, (1024, 2048, 4096))


def recipe(sampler, **changes):
    """Return a configuration as the recipes have it."""
    cache = {"cache_size": 50, "candidates": 50, "pool": 400, "rescale": "none"}
    told = {"scoring": "complex", "loss": "softmax", "sampler": sampler, "lr": 0.1, "l2": 0.0}
    told |= {"n3": 0.05, "dim": 64, "batch_size": 512, **(cache if sampler == "nscaching" else {})}
    return SearchSpace.build("recipe", TrainConfig(**{**told, **changes}), {})


def test_the_recipes_space_has_what_its_model_loss_and_sampler_read():
    model = ["lr", "dim", "batch_size", "n3", "relation_prediction"]
    model += ["schedule", "dropout", "label_smoothing"]
    assert list(recipe("all")) == model
    assert "relation_prediction" not in recipe("all", scoring="quate")
    assert list(recipe("nscaching")) == [*model, "cache_size", "pool", "alpha3"]
    assert list(recipe("nscaching", pool=0)) == [*model, "cache_size", "candidates", "alpha3"]
    paper = list(build("recipe", scoring="simple", batch_size=64))
    assert paper == ["lr", "dim", "batch_size", "l2", "cache_size", "candidates", "alpha3"]
    assert "margin" in build("recipe", scoring="transe")


def test_the_recipes_space_lies_around_its_values():
    rows = {each.name: each for each in recipe("nscaching").values()}
    assert rows["lr"].values == (0.01, 0.03, 0.1, 0.3)
    assert (rows["dim"].values, rows["batch_size"].values) == ((32, 64, 128), (256, 512, 1024))
    assert (rows["cache_size"].values, rows["pool"].values) == ((25, 50, 100), (100, 200, 400))
    first = {name: row.first for name, row in rows.items()}
    assert (first["lr"], first["dim"], first["n3"], first["dropout"]) == (0.1, 64, 0.05, 0.0)
    assert list(recipe("all", dim=1).values())[1].values == (1, 2)
    assert list(recipe("all", dim=12_345).values())[1].values == (6172, 12_345, 24_690)


def test_another_sampler_than_the_spaces_is_refused():
    with pytest.raises(UserError, match="bernoulli, not nscaching"):
        build("model", fixed={"sampler": "nscaching"})


def test_a_hyperparameter_may_depend_on_another_one():
    loss = Hyperparameter("loss", "choice", ("margin", "logistic"), first="margin")
    margin = Hyperparameter("margin", "grid", (1, 2), when={"loss": ("margin",)}, first=1)
    space = SearchSpace({"loss": loss, "margin": margin})
    points = [dict(point) for point in configuration_space(space, 0).sample_configuration(40)]
    options = [space.options(point) for point in points]
    assert all(("margin" in each) == (each["loss"] == "margin") for each in options)
    assert {each["loss"] for each in options} == {"margin", "logistic"}


def test_numbers_without_a_zero_use_the_whole_range():
    row = Hyperparameter("lr", "log", (1e-4, 1.0)).starting_at(0.01)
    assert [row.value(position) for position in (0.0, 0.25, 0.5, 1.0)] == [1e-4, 1e-3, 0.01, 1.0]
    assert row.starting_at(10.0).values == (1e-4, 10.0)
    assert Hyperparameter("l2", "log", (1e-4, 1.0)).starting_at(0.0).value(0.1) == 0.0


def _plain(value):
    return value.item() if isinstance(value, np.generic) else value
