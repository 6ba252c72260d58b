"""Bootstrap intervals against a slow twin, and what they promise."""

import numpy as np
import pytest

from nscaching.evaluation import intervals
from nscaching.evaluation.intervals import (
    METRICS,
    bootstrap_means,
    fact_values,
    interval,
    metric_intervals,
    paired_difference,
    within_noise,
)


def slow_means(values, resamples, seed):
    """Draw the same facts one by one and average what they have."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(resamples):
        drawn = [values[place] for place in rng.integers(0, len(values), (1, len(values)))[0]]
        found.append([sum(column) / len(drawn) for column in zip(*drawn, strict=True)])
    return np.array(found)


def test_means_equal_those_of_a_loop(monkeypatch):
    monkeypatch.setattr(intervals, "_BLOCK", 1)  # one resample at a time, as the loop draws
    values = np.random.default_rng(1).random((23, 3))
    assert bootstrap_means(values, resamples=40, seed=5) == pytest.approx(slow_means(values, 40, 5))


def test_blocks_draw_every_fact_equally_often():
    values = np.eye(50)
    shares = bootstrap_means(values, resamples=4000, seed=0)
    assert shares.sum(axis=1) == pytest.approx(1.0)
    assert shares.mean(axis=0) == pytest.approx(1 / 50, abs=5 * 0.14 / 50 / np.sqrt(4000) * 50)
    assert shares.std(axis=0).mean() == pytest.approx(np.sqrt(49) / 50 / np.sqrt(50), rel=0.02)


def test_values_of_facts_average_to_the_metrics():
    ranks = np.array([[1.0, 4.0, 12.0], [2.0, 1.0, 3.0]])
    values = dict(zip(METRICS, fact_values(ranks).mean(axis=0), strict=True))
    assert values["mrr"] == pytest.approx((1 / ranks).mean())
    assert values["hits@1"] == pytest.approx(2 / 6)
    assert values["hits@3"] == pytest.approx(4 / 6)
    assert values["hits@10"] == pytest.approx(5 / 6)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    held = 0
    for trial in range(300):
        values = rng.exponential(size=(200, 1))
        low, high = interval(bootstrap_means(values, resamples=400, seed=trial)[:, 0])
        held += low <= 1.0 <= high
    assert 0.89 < held / 300 < 0.98  # 0.95, a little less for a skewed mean of 200


def test_a_pair_is_told_apart_where_two_intervals_overlap():
    rng = np.random.default_rng(0)
    hard = rng.random(400)
    better = hard + 0.02 + 0.01 * rng.standard_normal(400)
    gap, ends = paired_difference(better, hard)
    assert gap == pytest.approx(0.02, abs=0.005)
    assert not within_noise(ends)
    one, other = (interval(bootstrap_means(each[:, None])[:, 0]) for each in (better, hard))
    assert one[0] < other[1]  # the unpaired intervals overlap
    swapped, turned = paired_difference(hard, better)
    assert swapped == -gap
    assert turned == pytest.approx((-ends[1], -ends[0]))


def test_noise_is_called_noise():
    rng = np.random.default_rng(0)
    same = rng.random(300)
    _, ends = paired_difference(same + 0.1 * rng.standard_normal(300), same)
    assert within_noise(ends)
    assert within_noise((0.01, 0.02), by_seed=[0.03, -0.001])
    assert not within_noise((0.01, 0.02), by_seed=[0.03, 0.001])


def test_nothing_has_no_interval():
    assert metric_intervals(np.empty((0, 4))) == {}
