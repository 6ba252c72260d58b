"""The shell of a page: no name becomes a template, colours differ, the command repeats the run."""

import re
import shlex

import pytest
import torch

from nscaching.artefacts.files import read_tensors
from nscaching.report.markup import Html, asset, tag
from nscaching.report.page import Section, command_line, render
from nscaching.training import RunFolder, TrainConfig

from ..cli.helpers import invoke
from ..training.helpers import kept_bits, train
from .reading import read


def test_titles_and_leads_are_escaped_and_no_template():
    made = render("<b>$lead", "$script & ${style}", Html(""), [Section("a", "A <i>", [tag("p")])])
    found = read(made)
    assert "<b>$lead" in found.words
    assert "$script & ${style}" in found.words
    assert found.words.count("A <i>") == 2  # in the list of contents and at its place
    assert "default-src 'none'" in made


def luminance(colour):
    """Return how light a colour is, as WCAG counts it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(by * x for by, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_lines_have_enough_contrast(scheme):
    found = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", asset("style.css"))
    colours = {name: pair[scheme] for name, *pair in found}
    for paper in ("paper", "card"):
        for name in ("ink", "quiet", "accent"):
            assert contrast(colours[name], colours[paper]) >= 4.5, name
        for number in range(8):
            assert contrast(colours[f"c{number}"], colours[paper]) >= 3, number


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
    one, other = (read_tensors(RunFolder(folder).model, "model")[0] for folder in (first, again))
    assert all(torch.equal(one[name], other[name]) for name in ("entity", "relation"))


def test_only_what_differs_is_said_and_words_are_quoted():
    config = TrainConfig(data="my graph.tsv", dim=7, epochs=100)
    assert command_line("train", config.as_dict(), [TrainConfig]) == (
        "nscaching train 'my graph.tsv' --dim 7"
    )
