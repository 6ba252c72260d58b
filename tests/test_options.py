import math
from dataclasses import dataclass

import pytest
import yaml

from nscaching.errors import UserError
from nscaching.losses import LossOptions
from nscaching.models import SCORING, ScoringOptions
from nscaching.options import OptionGroup, Options
from nscaching.sampling import SAMPLERS, SamplerOptions

INF, NAN = math.inf, math.nan
option = OptionGroup("G")


@dataclass(kw_only=True)
class Example(Options):
    colour: str = option("red", "A choice.", choices=("red", "green"))
    size: int = option(3, "A whole number.", low=1, high=9)
    rate: float = option(0.5, "A share.", above=0, below=1)
    heat: float = option(1.0, "May be infinite.", low=0, infinite=True)
    name: str | None = option(None, "May be left out.")
    quiet: bool = option(False, "A switch.")


def example(**values):
    return Example.from_mapping(values, "here")


def test_defaults_pass_their_own_checks():
    for options in (Example, ScoringOptions, LossOptions, SamplerOptions):
        options().check()


def test_a_choice_that_is_none_is_refused_in_a_sentence():
    with pytest.raises(UserError, match=r"colour must be one of red, green, not 'foo'\.$"):
        example(colour="foo")


@pytest.mark.parametrize(
    ("name", "value", "phrase"),
    [
        ("size", 0, "size must be at least 1, not 0"),
        ("size", 10, "size must be at most 9, not 10"),
        ("rate", 0, "rate must be above 0, not 0"),
        ("rate", 1.0, "rate must be below 1, not 1"),
        ("heat", -0.1, "heat must be at least 0, not -0.1"),
    ],
)
def test_out_of_range_is_refused_with_the_bound(name, value, phrase):
    with pytest.raises(UserError, match=f"^here: {phrase}"):
        example(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("size", 1), ("size", 9), ("rate", 1e-12), ("rate", 0.999), ("heat", 0)]
)
def test_bounds_are_inclusive_or_exclusive_as_declared(name, value):
    assert getattr(example(**{name: value}), name) == value


@pytest.mark.parametrize("value", [NAN, "nan", INF, -INF, "inf"])
def test_rate_must_be_finite(value):
    with pytest.raises(UserError, match="rate must be a finite number"):
        example(rate=value)


@pytest.mark.parametrize("value", [INF, "inf", "Infinity"])
def test_infinity_is_taken_where_it_is_declared(value):
    assert example(heat=value).heat == INF


@pytest.mark.parametrize("value", [NAN, "nan", -INF, "-inf"])
def test_declared_infinity_does_not_let_nan_or_minus_infinity_in(value):
    with pytest.raises(UserError, match="heat must be a finite number"):
        example(heat=value)


@pytest.mark.parametrize("value", [INF, NAN, 2.5, "3", None, [3]])
def test_whole_number_refuses_anything_else(value):
    with pytest.raises(UserError, match="size must be a whole number"):
        example(size=value)


@pytest.mark.parametrize("value", [True, False])
def test_bool_is_not_a_number(value):
    with pytest.raises(UserError, match="size must be a whole number"):
        example(size=value)
    with pytest.raises(UserError, match="rate must be a number"):
        example(rate=value)


@pytest.mark.parametrize("value", [1, 0, "yes", None])
def test_number_or_text_is_not_a_bool(value):
    with pytest.raises(UserError, match="quiet must be true or false"):
        example(quiet=value)


@pytest.mark.parametrize("value", [1, 2.0, True, None, ["red"]])
def test_text_refuses_anything_else(value):
    with pytest.raises(UserError, match="colour must be text"):
        example(colour=value)


@pytest.mark.parametrize("value", ["fast", "", "0.1.2", None])
def test_number_refuses_other_text(value):
    with pytest.raises(UserError, match="rate must be a number"):
        example(rate=value)


@pytest.mark.parametrize(
    ("written", "name", "value"),
    [
        ("rate: 1e-3", "rate", 0.001),
        ("rate: 1.0e-3", "rate", 0.001),
        ("heat: 2", "heat", 2.0),
        ("heat: .inf", "heat", INF),
        ("size: 5.0", "size", 5),
        ("quiet: true", "quiet", True),
        ("name: null", "name", None),
        ("name: x", "name", "x"),
    ],
)
def test_values_as_yaml_reads_them_get_their_declared_type(written, name, value):
    taken = getattr(Example.from_mapping(yaml.safe_load(written), "file"), name)
    assert taken == value
    assert type(taken) is type(value)


@pytest.mark.parametrize("name", ["heat", "size"])
def test_number_too_large_for_a_float_is_refused_with_a_sentence(name):
    with pytest.raises(UserError, match=name):
        example(**{name: 10**400})


def test_unknown_option_names_the_nearest_and_the_source():
    with pytest.raises(UserError, match=r"^run.yaml: unknown option 'colr'.*'colour'"):
        Example.from_mapping({"colr": "red"}, "run.yaml")


def test_unknown_option_without_a_near_name_lists_all():
    with pytest.raises(UserError, match="colour, size, rate, heat, name, quiet"):
        example(zzzzzz=1)


def test_unknown_key_that_is_not_text_is_refused():
    with pytest.raises(UserError, match="unknown option '7'"):
        Example.from_mapping({7: 1}, "here")


def test_unknown_choice_lists_the_choices_and_the_nearest():
    with pytest.raises(UserError, match=r"red, green, not 'gren'.*'green'"):
        example(colour="gren")


def test_as_dict_keeps_the_order_and_builds_the_same_again():
    options = example(colour="green", rate="1e-3", heat=INF)
    values = options.as_dict()
    assert list(values) == ["colour", "size", "rate", "heat", "name", "quiet"]
    assert Example.from_mapping(values, "again") == options


def test_registries_are_read_when_a_value_is_checked():
    for name in SCORING:
        assert ScoringOptions.from_mapping({"scoring": name}, "here").build_scoring().name == name
    for name in SAMPLERS:
        assert SamplerOptions.from_mapping({"sampler": name}, "here").sampler == name


@pytest.mark.parametrize(
    ("options", "name", "bad"),
    [
        (ScoringOptions, "dim", 0),
        (ScoringOptions, "norm", 3),
        (LossOptions, "margin", 0),
        (LossOptions, "l2", -1e-9),
        (SamplerOptions, "negatives", 0),
        (SamplerOptions, "cache_size", 0),
        (SamplerOptions, "candidates", -1),
        (SamplerOptions, "alpha1", INF),
        (SamplerOptions, "alpha2", -1),
        (SamplerOptions, "alpha3", NAN),
        (SamplerOptions, "lazy", -1),
        (SamplerOptions, "rescale", "minmax"),
        (SamplerOptions, "known_positives", "maybe"),
    ],
)
def test_ranges_of_the_real_options(options, name, bad):
    with pytest.raises(UserError, match=name):
        options.from_mapping({name: bad}, "here")


@pytest.mark.parametrize(
    ("name", "edge"),
    [("candidates", 0), ("lazy", 0), ("alpha1", 0), ("alpha2", INF), ("alpha3", INF)],
)
def test_edges_of_the_sampler_options_are_allowed(name, edge):
    assert getattr(SamplerOptions.from_mapping({name: edge}, "here"), name) == edge


def test_an_unknown_option_is_shown_without_characters_that_cannot_be_seen():
    with pytest.raises(UserError, match=r"unknown option 'si\\ufeffze'; did you mean 'size'"):
        Example.from_mapping({"si\ufeffze": 3}, "here")
