"""The command on a page trains the very same run."""

import shlex

import pytest

from nscaching.report.repeating import command_line
from nscaching.training import RunFolder, TrainConfig

from ..cli.helpers import invoke
from ..training.helpers import kept_bits, train


def flags_of(line):
    """Return the arguments after the name of the program."""
    program, *arguments = shlex.split(line)
    assert program == "nscaching"
    return arguments


@pytest.mark.parametrize(
    "options",
    [
        {"scoring": "transe", "norm": 2, "margin": 1.5, "known_positives": "allow"},
        {"trace_row": ["e1|r0|?", "?|r1|e5"], "compact": False, "lr": 1e-2},
        {"sampler": "bernoulli", "trace": True},
        {"preset": "igan", "alpha2": 0.5},
    ],
)
def test_the_command_gives_the_same_configuration_and_bits(data, tmp_path, options):
    first, again = tmp_path / "A", tmp_path / "B"
    run = train(str(data), out=first, epochs=1, **options)
    line = command_line("train", run.config.as_dict(), [TrainConfig])
    outcome = invoke(*flags_of(line), "--out", again, "--quiet", "--no-report")
    assert outcome.code == 0, outcome.stderr
    assert RunFolder(again).read_config() == RunFolder(first).read_config()
    assert kept_bits(again).keys() == kept_bits(first).keys()
    model = [RunFolder(folder).model.read_bytes() for folder in (first, again)]
    assert model[0] == model[1]


def test_only_what_differs_is_said_and_words_are_quoted():
    config = TrainConfig(data="my graph.tsv", dim=7, epochs=100)
    assert command_line("train", config.as_dict(), [TrainConfig]) == (
        "nscaching train 'my graph.tsv' --dim 7"
    )
