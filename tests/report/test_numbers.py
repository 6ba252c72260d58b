"""Numbers and ticks."""

import itertools

import pytest

from nscaching.report.numbers import (
    log_ticks,
    percent,
    plural,
    rank,
    share,
    short,
    thinned,
    tick_text,
    ticks,
)


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
