"""What is not HTML already is escaped, wherever it stands."""

import itertools

import pytest

from nscaching.report.markup import (
    Column,
    Html,
    bar,
    breakable,
    command,
    join,
    log_ticks,
    percent,
    plural,
    rank,
    share,
    short,
    table,
    tag,
    text,
    thinned,
    tick_text,
    ticks,
)

from .reading import Reading


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
    columns = [Column("name", "text"), Column("n"), Column("m", minor=True)]
    page = Reading(table("A <caption>", columns, [["a&b", 1, 2], ["c", 3, 4]], chosen=1))
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
    assert (plural(1, "run"), plural(1200, "run")) == ("1 run", "1,200 runs")


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
