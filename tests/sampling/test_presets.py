"""Presets are defaults of options, and "all" is the number of entities."""

import pytest

from nscaching import UserError
from nscaching.sampling import SamplerOptions
from nscaching.sampling.options import ALL, PRESETS, check_preset, fitted, with_preset


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_given_besides_a_preset_wins(name):
    assert with_preset({"preset": name}) == {"preset": name, **PRESETS[name]}
    assert with_preset({"preset": name, "alpha2": 7.0})["alpha2"] == 7.0


def test_without_a_preset_nothing_changes():
    assert with_preset({"alpha2": 7.0, "preset": None}) == {"alpha2": 7.0, "preset": None}


def test_all_is_the_number_of_entities_and_a_number_stays():
    options = fitted(SamplerOptions(cache_size=ALL, candidates=60), 40)
    assert (options.cache_size, options.candidates) == (40, 60)


def test_only_nscaching_takes_a_preset():
    check_preset(SamplerOptions(preset="igan"))
    with pytest.raises(UserError, match="preset 'igan' is a setting of the sampler nscaching"):
        check_preset(SamplerOptions(preset="igan", sampler="uniform"))
