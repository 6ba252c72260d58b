"""Reading what is compared, from text and from Python."""

import pytest

from nscaching import UserError
from nscaching.experiments.comparison import read_variants


def options_of(given):
    return [variant.options for variant in read_variants(given)]


def test_names_with_commas_and_options_after_colons():
    assert options_of("uniform,nscaching,nscaching:alpha3=5:known-positives=allow:pool=true") == [
        {"sampler": "uniform"},
        {"sampler": "nscaching"},
        {"sampler": "nscaching", "alpha3": 5, "known_positives": "allow", "pool": True},
    ]


def test_lists_of_texts_and_mappings():
    assert options_of(["uniform,igan", {"sampler": "kbgan", "lr": 0.1}]) == [
        {"sampler": "uniform"},
        {"sampler": "igan"},
        {"sampler": "kbgan", "lr": 0.1},
    ]
    assert read_variants([{"sampler": "kbgan", "lr": 0.1}])[0].label == "kbgan:lr=0.1"


def test_every_row_has_a_folder_of_its_own_with_a_plain_name():
    rows = read_variants("nscaching,nscaching:alpha3=5,nscaching:alpha3=50")
    assert [row.folder(2) for row in rows] == [
        "nscaching-seed2",
        "nscaching-alpha3=5-seed2",
        "nscaching-alpha3=50-seed2",
    ]
    assert read_variants([{"sampler": "uniform", "init_from": "../a b"}])[0].folder(0) == (
        "uniform-init_from=..-a-b-seed0"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("uniformly", ["unknown sampler 'uniformly'", "did you mean 'uniform'"]),
        ("uniform,uniform", ["'uniform'", "twice"]),
        ("kbgan:lr", ["'lr'", "option=value"]),
        ("kbgan:seed=3", ["seed", "same for all"]),
        ([{"alpha3": 1}], ["unknown sampler ''"]),
        (",", ["at least one sampler"]),
    ],
)
def test_mistakes_are_named(given, words):
    with pytest.raises(UserError) as error:
        read_variants(given)
    for word in words:
        assert word in str(error.value)
