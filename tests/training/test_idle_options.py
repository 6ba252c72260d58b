"""Options that do nothing in a run are remarked on, those that do something are not."""

import pytest

from nscaching.sampling import SAMPLERS, SamplerOptions
from nscaching.training import TrainConfig
from nscaching.training.idle_options import idle_options


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


def test_what_was_not_given_is_not_remarked_on():
    assert idle_options(TrainConfig(sampler="bernoulli"), []) == []


@pytest.mark.parametrize("name", SamplerOptions.names())
def test_every_option_of_samplers_is_read_by_all_or_belongs_to_some(name):
    of_all = {"sampler", "negatives", "known_positives"}
    owned = any(name in sampler.own_options for sampler in SAMPLERS.values())
    assert owned != (name in of_all)
