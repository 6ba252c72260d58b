"""Recipes: which one a graph gets, what it gives, and that whatever is asked for wins."""

import pytest
import torch

import nscaching as ns
from nscaching import UserError
from nscaching.training import TrainConfig, recipes

from ..conftest import graph_of, random_graph
from .helpers import few_valid_facts, ring, train


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv(recipes.VARIABLE, raising=False)


def test_a_variable_names_the_recipe_where_none_is_asked_for(monkeypatch):
    monkeypatch.setenv(recipes.VARIABLE, "cached")
    assert recipes.with_recipe({"device": "cpu"}, random_graph())[0]["recipe"] == "cached"
    named = {"device": "cpu", "recipe": "all-entities"}
    assert recipes.with_recipe(named, random_graph())[0]["recipe"] == "all-entities"
    assert recipes.with_recipe({"lr": 0.1}, random_graph())[0]["recipe"] == "paper"


def test_every_recipe_is_made_of_options():
    assert recipes.names() == ["all-entities", "cached", "paper"]
    for name in recipes.names():
        assert set(recipes.read(name)) <= set(TrainConfig.names())


def test_a_small_graph_is_scored_whole_and_the_choice_is_said():
    options, sentence = recipes.with_recipe({"device": "cpu", "dim": 8}, random_graph())
    assert (options["recipe"], options["sampler"], options["loss"]) == (
        "all-entities",
        "all",
        "softmax",
    )
    assert options["dim"] == 8
    assert "all-entities" in sentence
    assert "25 entities" in sentence


def test_a_graph_too_large_for_the_processor_gets_the_cache(monkeypatch):
    monkeypatch.setitem(recipes._MOST_WORK, "cpu", 1.0)
    options, sentence = recipes.with_recipe({"device": "cpu"}, random_graph())
    assert (options["recipe"], options["sampler"]) == ("cached", "nscaching")
    assert options["cache_size"] < 25
    assert "cached" in sentence


def test_a_validation_ranks_fewer_facts_where_entities_are_many(monkeypatch):
    graph = random_graph()
    assert "valid_facts" not in recipes.with_recipe({"device": "cpu"}, graph)[0]
    monkeypatch.setattr(recipes, "_LEAST_VALID", 1)
    monkeypatch.setattr(recipes, "_VALID_SCORES", 2 * graph.num_entities)
    assert recipes.with_recipe({"device": "cpu"}, graph)[0]["valid_facts"] == 2
    asked = {"device": "cpu", "valid_facts": 3}
    assert recipes.with_recipe(asked, graph)[0]["valid_facts"] == 3
    for name in recipes.names():  # so that their MRR on valid can be compared
        assert recipes.with_recipe({"recipe": name, "device": "cpu"}, graph)[0]["valid_facts"] == 2


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_a_recipe_fits_to_a_graph_is_listed(monkeypatch, device):
    monkeypatch.setattr(recipes, "pick_device", lambda name: torch.device(name))
    few_valid_facts(monkeypatch, 2)
    found = set()
    for recipe in (recipes.ALL_ENTITIES, recipes.CACHED):
        given = {"recipe": recipe, "device": device}
        for options in (given, {**given, "scoring": "quate"}):
            made, own = recipes.with_recipe(options, graph_with_pairs(1))[0], recipes.read(recipe)
            same = {name for name in made if name in own and made[name] == own[name]}
            found |= made.keys() - same - options.keys()
    assert found == recipes.FITTED


def test_a_configuration_from_before_valid_facts_repeats_its_run(tmp_path, monkeypatch):
    options = {"epochs": 1, "dim": 4, "device": "cpu", "recipe": "paper"}
    before = train(ring(), out=tmp_path / "R", **options)
    few_valid_facts(monkeypatch, 2)
    file = tmp_path / "R" / "config.yaml"
    drawn = train(ring(), config=file)
    assert drawn.summary["valid"]["count"] == before.summary["valid"]["count"]
    file.write_text(file.read_text().replace("valid_facts: null\n", ""))
    again = train(ring(), config=file)
    assert again.summary["valid"]["count"] == before.summary["valid"]["count"]
    file.write_text("epochs: 1\ndim: 4\nrecipe: paper\n")
    assert train(ring(), config=file).summary["valid"]["count"] == 4


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_penalty_falls_with_density_and_is_larger_where_vectors_are_wide(monkeypatch, device):
    monkeypatch.setattr(recipes, "pick_device", lambda name: torch.device(name))
    given = {"recipe": "all-entities", "device": device}
    sparse, middle, dense = (
        recipes.with_recipe(given, random_graph(train=25 * times))[0]["n3"] for times in (2, 6, 20)
    )
    assert sparse > middle > dense
    assert dense == {"cpu": 0.025, "cuda": 0.035}[device]


def test_the_penalty_is_small_where_an_entity_has_very_many_facts():
    given = {"recipe": "all-entities", "device": "cpu"}
    assert recipes.with_recipe(given, random_graph(train=25 * 40))[0]["n3"] == 0.01


def test_a_processor_takes_the_widest_vectors_that_it_affords(monkeypatch):
    given, graph = {"recipe": "all-entities", "device": "cpu"}, random_graph()
    found = recipes.with_recipe(given, graph)[0]
    assert found["dim"] == 256
    work = found["epochs"] * recipes._epoch_work(graph, 1)
    for most, dim in ((200 * work, 128), (20 * work, 64)):
        monkeypatch.setattr(recipes, "_RUN_WORK", most)
        assert recipes.with_recipe(given, graph)[0]["dim"] == dim


@pytest.mark.parametrize(
    ("entities", "train", "dim"),
    [(2900, 9_000, 256), (4800, 21_000, 256), (7900, 24_000, 128), (5400, 150_000, 64)],
)
def test_the_width_of_a_run_over_all_entities_follows_its_size(entities, train, dim):
    graph = random_graph(entities, relations=9, train=train)
    assert recipes.with_recipe({"device": "cpu"}, graph)[0]["dim"] == dim


def test_a_processor_with_a_cache_takes_the_widest_vectors_that_it_affords(monkeypatch):
    given, graph = {"recipe": "cached", "device": "cpu", "epochs": 1}, random_graph(train=400)
    for most, dim, penalty in (
        (512, 512, 0.035),
        (300, 256, 0.035),
        (128, 128, 0.025),
        (9, 64, 0.025),
    ):
        monkeypatch.setattr(recipes, "_CACHED_WORK", most * len(graph.train))
        found = recipes.with_recipe(given, graph)[0]
        assert (found["dim"], found["n3"]) == (dim, penalty)
    monkeypatch.setattr(recipes, "_CACHED_WORK", 1e9)
    assert recipes.with_recipe({**given, "scoring": "transe"}, graph)[0]["dim"] == 128
    assert recipes.with_recipe({**given, "dim": 64}, graph)[0]["n3"] == 0.025


def graph_with_pairs(relations):
    """Return a graph in which every pair of a head and a tail has so many relations, of two."""
    pairs = [(h, t) for h in range(12) for t in range(12) if h != t]
    return graph_of([(h, (h + r) % 2, t) for h, t in pairs for r in range(relations)])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_relations_are_predicted_where_a_pair_has_one_and_the_score_is_bilinear(
    monkeypatch, device
):
    monkeypatch.setattr(recipes, "pick_device", lambda name: torch.device(name))
    given = {"recipe": "all-entities", "device": device}
    weight = "relation_prediction"
    assert recipes.with_recipe(given, graph_with_pairs(1))[0][weight] > 0
    assert weight not in recipes.with_recipe(given, graph_with_pairs(2))[0]
    assert weight not in recipes.with_recipe({**given, "scoring": "rotate"}, graph_with_pairs(1))[0]
    for other in ({"recipe": "cached"}, {"sampler": "bernoulli", "loss": "logistic"}):
        assert weight not in recipes.with_recipe({**given, **other}, graph_with_pairs(1))[0]


def test_quate_keeps_the_length_of_its_relations_unless_it_is_asked_for():
    given = {"recipe": "all-entities", "scoring": "quate", "device": "cpu"}
    free = recipes.with_recipe(given, graph_with_pairs(1))[0]
    assert free["normalize"] is False
    assert free["relation_prediction"] > 0
    unit = recipes.with_recipe({**given, "normalize": True}, graph_with_pairs(1))[0]
    assert unit["normalize"] is True
    assert "relation_prediction" not in unit
    assert (
        "normalize" not in recipes.with_recipe({**given, "scoring": "complex"}, random_graph())[0]
    )


@pytest.mark.parametrize("relations", [1, 4])
def test_relations_are_not_predicted_where_there_is_one_or_nearly_as_many_as_entities(relations):
    facts = [(h, (h + t) % relations, t) for h in range(12) for t in range(12) if h != t]
    given = {"recipe": "all-entities", "device": "cpu"}
    assert "relation_prediction" not in recipes.with_recipe(given, graph_of(facts))[0]


def test_distances_and_long_runs_have_narrow_vectors():
    given, graph = {"recipe": "all-entities", "device": "cpu"}, random_graph()
    assert recipes.with_recipe({**given, "scoring": "transe"}, graph)[0]["dim"] == 64
    assert recipes.with_recipe({**given, "epochs": 10**9}, graph)[0]["dim"] == 64


@pytest.mark.parametrize("scoring", ["transe", "rotate", "quate"])
def test_predicting_relations_is_refused_where_the_score_is_not_bilinear(scoring):
    with pytest.raises(UserError, match=f"{scoring}, which is not bilinear.*distmult, complex"):
        ns.train(random_graph(), scoring=scoring, relation_prediction=0.1, progress="none")


@pytest.mark.parametrize("asked", [{"scoring": "transe"}, {"l2": 0.1}, {"sampler": "bernoulli"}])
def test_a_word_on_the_method_keeps_the_papers_settings(asked):
    options, sentence = recipes.with_recipe(asked, random_graph())
    assert options == {**asked, "recipe": "paper"}
    assert sentence is None


def test_options_win_over_a_recipe_that_is_named():
    given = {"recipe": "cached", "scoring": "distmult", "cache_size": 3, "device": "cpu"}
    options, _ = recipes.with_recipe(given, random_graph())
    assert (options["scoring"], options["cache_size"]) == ("distmult", 3)
    assert options["loss"] == "softmax"


def test_a_recipe_that_does_not_exist_is_refused_with_the_names_there_are():
    with pytest.raises(UserError, match="did you mean 'cached'"):
        ns.train(random_graph(), recipe="cache", progress="none")


@pytest.mark.parametrize("recipe", ["auto", "all-entities", "cached", "paper"])
def test_a_run_writes_down_what_it_was_made_with_and_repeats_it(tmp_path, recipe):
    graph = random_graph()
    small = {"dim": 4, "epochs": 2, "valid_every": 1, "device": "cpu", "progress": "none"}
    run = ns.train(graph, out=tmp_path / "a", recipe=recipe, **small)
    again = ns.train(graph, config=tmp_path / "a" / "config.yaml", progress="none")
    assert again.config == run.config
    assert run.config.recipe in recipes.names()
    assert again.model.entity.equal(run.model.entity)
