"""Elements, numbers, and the shell of a page: escaped, no template, colours that differ."""

import itertools
import re
import shlex

import pytest
import torch

from nscaching.artefacts.files import read_tensors
from nscaching.report.markup import (
    Html,
    Section,
    asset,
    bar,
    breakable,
    command,
    command_line,
    join,
    log_ticks,
    percent,
    rank,
    render,
    share,
    short,
    table,
    tag,
    text,
    thinned,
    tick_text,
    ticks,
)
from nscaching.training import RunFolder, TrainConfig

from ..cli.helpers import invoke
from ..training.helpers import kept_bits, train
from .reading import Reading, read


def test_text_and_attributes_are_escaped_and_html_is_not():
    assert text("<b>&\"'") == "&lt;b&gt;&amp;&quot;&#x27;"
    assert text(Html("<b>")) == "<b>"
    made = tag("p", "<i>", tag("b", "&"), title='"><x', data_some_thing=1, class_=None)
    assert made == '<p title="&quot;&gt;&lt;x" data-some-thing="1">&lt;i&gt;<b>&amp;</b></p>'
    assert isinstance(made, Html)
    assert join(["<", tag("b")], "&") == "&lt;&amp;<b></b>"


def test_a_name_may_break_after_marks_and_stays_escaped():
    assert breakable("_member_of") == "_<wbr>member_<wbr>of"
    assert breakable("a/b.c_") == "a/<wbr>b.<wbr>c_"
    page = Reading(f"<p>{breakable('</p><script>/x_y</script>')}</p>")
    assert page.words == "</p><script>/x_y</script>"
    assert page.count("script") == 0


def test_a_table_has_heads_a_caption_and_every_cell():
    rows = [{"name": "a&b", "n": 1, "m": 2}, {"name": "c", "n": 3, "m": 4}]
    page = Reading(table("A <caption>", rows, minor=["m"], chosen=1))
    assert page.words == "A <caption>namenma&b12c34"
    heads = [attributes for name, attributes in page.tags if name == "th"]
    assert [head["scope"] for head in heads] == ["col"] * 3 + ["row"] * 2
    cells = [attributes["class"] for name, attributes in page.tags if name == "td"]
    assert cells == ["number", "number minor"] * 2
    rows = [attributes.get("class") for name, attributes in page.tags if name == "tr"]
    assert rows == [None, None, "chosen"]


def test_a_command_reads_as_it_was_given_and_a_bar_stays_in_its_frame():
    line = "nscaching train 'a  b' --dim 4"
    assert line in "".join(Reading(command(line)).text)
    assert "--share: 1.000" in bar(1.7, "1.7")
    assert "--share: 0.000" in bar(-0.1, "x")


@pytest.mark.parametrize(
    ("low", "high"), [(0, 20), (0, 1.3), (0, 0.00031), (0.156, 0.17), (-3, 5), (2, 2), (0, 0)]
)
def test_ticks_cover_the_range_evenly_with_texts_that_differ(low, high):
    found = ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    assert 2 <= len(found) <= 9
    steps = {round(b - a, 9) for a, b in itertools.pairwise(found)}
    assert len(steps) == 1
    texts = [tick_text(tick, found[1] - found[0]) for tick in found]
    assert [float(each.replace(",", "")) for each in texts] == pytest.approx(found)


def test_ticks_of_what_is_counted_are_whole():
    assert ticks(0, 3, whole=True) == [0, 1, 2, 3]
    assert ticks(0, 1, whole=True) == [0, 1]


def test_numbers_as_a_reader_likes_them():
    assert (share(0.12345), share(None), share(float("nan"))) == ("0.123", "–", "–")
    assert (rank(12.34), rank(7975.4)) == ("12.3", "7,975")
    assert (percent(0), percent(0.5), percent(0.00002)) == ("0 %", "50.0 %", "0.0020 %")
    assert (short(True), short(0.001), short("x"), short(3)) == ("yes", "0.001", "x", "3")


@pytest.mark.parametrize(("low", "high"), [(1, 1), (0.3, 0.4), (1.5, 80), (1e-9, 1e6), (2, 9)])
def test_logarithmic_ticks_cover_the_range_and_are_few(low, high):
    found = log_ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    assert found == sorted(set(found))
    assert 2 <= len(found) <= 8


def test_thinning_keeps_both_ends():
    assert thinned([1, 2, 3], 5) == [1, 2, 3]
    some = thinned(range(100), 5)
    assert (some[0], some[-1], len(some)) == (0, 99, 5)


# Pages --------------------------------------------------------------------------------------------


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
