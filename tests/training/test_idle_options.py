"""Options that do nothing in a run are remarked on, those that do something are not."""

import pytest

from nscaching.sampling import SAMPLERS, SamplerOptions
from nscaching.training import TrainConfig
from nscaching.training.config import idle_options

from .helpers import ring, train


def said(**given):
    return idle_options(TrainConfig(**given), given)


def test_the_margin_is_for_the_margin_loss():
    assert said(margin=2.0) == ["--margin has no effect with the logistic loss."]
    assert said(margin=2.0, scoring="transe") == []
    assert said(margin=2.0, loss="margin") == []
    assert said(margin=2.0, loss="logistic", scoring="transe") != []
    assert said(margin=2.0, sampler="kbgan", generator_epochs=3) == [], "the TransE's margin"


def test_the_norm_is_for_distances():
    assert said(norm=2) == ["--norm has no effect with the scoring function simple."]
    assert said(norm=2, scoring="transh") == []


def test_samplers_have_options_of_their_own():
    assert said(sampler="bernoulli", cache_size=10, alpha3=2.0) == [
        "--cache-size and --alpha3 have no effect with the sampler bernoulli."
    ]
    assert said(cache_size=10, alpha3=2.0, negatives=2) == []
    assert said(sampler="kbgan", cache_size=10, generator_dim=5) == []
    assert said(generator_dim=5) == ["--generator-dim has no effect with the sampler nscaching."]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"alpha2": 1.0, "negatives": 3},
            "--alpha2 and --negatives have no effect with",
        ),
        ({"int8": False}, "--no-int8 has no effect with the softmax loss"),
        ({"candidates": 9, "pool": 5}, "--candidates has no effect with --pool"),
        (
            {"sampler": "uniform", "negatives": 9, "pool": 5},
            "--negatives has no effect with --pool",
        ),
        (
            {"sampler": "uniform", "known_positives": "allow", "pool": 5},
            "--known-positives has no effect with the softmax loss: uniform",
        ),
        (
            {"sampler": "all", "negatives": 9, "known_positives": "allow"},
            "--negatives and --known-positives have no effect with the sampler all",
        ),
        ({"sampler": "all", "pool": 9}, "--pool has no effect with the sampler all"),
        ({"offset": 3.0}, "--offset has no effect with the softmax loss"),
    ],
)
def test_what_the_softmax_loss_does_not_read(given, sentence):
    (found,) = said(loss="softmax", **given)
    assert found.startswith(sentence)


@pytest.mark.parametrize(
    "given",
    [
        {"candidates": 9, "alpha3": 2.0, "known_positives": "allow", "alpha1": 0.5, "lazy": 1},
        {"pool": 9, "cache_size": 5, "n3": 0.1, "scoring": "rotate"},
        {"sampler": "uniform", "negatives": 9},
        {"sampler": "uniform", "pool": 9},
        {"sampler": "all", "label_smoothing": 0.1, "dropout": 0.1, "schedule": "linear"},
    ],
)
def test_what_the_softmax_loss_reads(given):
    assert said(loss="softmax", **given) == []


def test_a_pool_replaces_candidates_with_other_losses_too_but_not_negatives_of_a_row():
    assert said(candidates=9, pool=5) == [
        "--candidates has no effect with --pool, which takes their place."
    ]
    assert said(negatives=9, pool=5) == []
    assert said(sampler="bernoulli", pool=5, known_positives="allow") == []


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"normalize": False}, "--no-normalize has no effect with simple: it is for transe"),
        ({"normalize": True, "scoring": "transh"}, "--normalize has no effect with transh"),
        (
            {"int8": True, "scoring": "transe"},
            "--int8 has no effect with the scoring",
        ),
        ({"importance": True}, "--importance has no effect where --alpha1 is 0"),
        (
            {"rescale": "none", "alpha3": 0.0},
            "--rescale has no effect where all",
        ),
        ({"patience": 3, "select": "hits@1", "valid_every": 0}, "--patience and --select have no"),
        ({"trace_window": 3}, "--trace-window has no effect without --trace"),
        ({"pretrain_epochs": 5, "epochs": 5}, "All 5 epochs are pretraining"),
    ],
)
def test_options_that_others_switch_off(given, sentence):
    (found,) = said(**given)
    assert found.startswith(sentence)


@pytest.mark.parametrize(
    "given",
    [
        {"normalize": False, "scoring": "transe"},
        {"normalize": False, "scoring": "quate"},
        {"int8": False},
        {"importance": True, "alpha1": 0.5},
        {"rescale": "none", "alpha3": 0.0, "alpha2": 1.0},
        {"patience": 3, "select": "hits@1"},
        {"trace_window": 3, "trace": True},
        {"pretrain_epochs": 5, "epochs": 6},
    ],
)
def test_options_that_others_leave_on(given):
    assert said(**given) == []


@pytest.mark.parametrize("progress", ["lines", "none"])
def test_remarks_are_on_the_options_with_their_recipe(capsys, progress):
    options = {"recipe": "all-entities", "label_smoothing": 0.1, "cache_size": 9, "margin": 3.0}
    train(ring(), **{**options, "progress": progress})
    told = [line for line in capsys.readouterr().err.splitlines() if "no effect" in line]
    assert told == (
        [
            "--margin has no effect with the softmax loss.",
            "--cache-size has no effect with the sampler all.",
        ]
        if progress == "lines"
        else []
    )


def test_what_was_not_given_is_not_remarked_on():
    assert idle_options(TrainConfig(sampler="bernoulli"), []) == []


@pytest.mark.parametrize("name", SamplerOptions.names())
def test_every_option_of_samplers_is_read_by_all_or_belongs_to_some(name):
    of_all = {"sampler", "negatives", "known_positives"}
    owned = any(name in sampler.own_options for sampler in SAMPLERS.values())
    assert owned != (name in of_all)
