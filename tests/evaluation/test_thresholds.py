"""Thresholds against a slow twin that tries them all."""

import numpy as np
import pytest

from nscaching.evaluation import fit_thresholds


def right(scores, true, threshold):
    return sum((s >= threshold) == y for s, y in zip(scores, true, strict=True))


def best(scores, true):
    """Try every score as a threshold, and one above them all."""
    return max(right(scores, true, t) for t in [*scores, max(scores) + 1])


def random_case(seed, ties):
    rng = np.random.default_rng(seed)
    count, relations = int(rng.integers(1, 90)), int(rng.integers(1, 8))
    scores = rng.normal(size=count)
    if ties:
        scores = np.round(2 * scores) / 2
    relation = rng.integers(relations, size=count)
    true = rng.random(count) < 1 / (1 + np.exp(-scores * rng.choice([0.5, 3])))
    return scores.astype(np.float32), relation, true, relations + 2


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_no_threshold_is_better(seed, ties):
    scores, relation, true, relations = random_case(seed, ties)
    found = fit_thresholds(scores, relation, true, relations)
    assert right(scores, true, found.overall) == best(scores, true)
    for r in range(relations):
        mine = relation == r
        assert found.own[r] == mine.any()
        if mine.any():
            value = found.values[r]
            assert right(scores[mine], true[mine], value) == best(scores[mine], true[mine])
        else:
            assert found.values[r] == found.overall
    assert np.isfinite(found.values).all()


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_the_triples_does_not_matter(seed):
    scores, relation, true, relations = random_case(seed, ties=True)
    found = fit_thresholds(scores, relation, true, relations)
    mixed = np.random.default_rng(seed).permutation(len(scores))
    again = fit_thresholds(scores[mixed], relation[mixed], true[mixed], relations)
    assert np.array_equal(found.values, again.values)


def test_the_threshold_stands_between_the_two_scores():
    scores, true = np.array([-3.0, -1.0, 2.0, 5.0]), np.array([False, False, True, True])
    found = fit_thresholds(scores, np.zeros(4, dtype=int), true, 1)
    assert found.values.tolist() == [0.5]
    assert found.margins(scores, np.zeros(4, dtype=int)).tolist() == [-3.5, -1.5, 1.5, 4.5]


def test_equal_scores_are_not_told_apart():
    scores, true = np.array([1.0, 1.0, 1.0]), np.array([True, True, False])
    found = fit_thresholds(scores, np.zeros(3, dtype=int), true, 1)
    assert (found.margins(scores, np.zeros(3, dtype=int)) >= 0).all()


def test_where_valid_does_not_decide_the_overall_threshold_does():
    scores = np.array([0.0, 1.0, 3.0, 10.0, 4.0, 7.0, 0.5, 1.5])
    true = np.array([False, False, True, True, True, False, True, False])
    relation = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    found = fit_thresholds(scores, relation, true, 3)
    assert found.overall == 2.25
    # Relations 1 and 2 have their fact below their negative: all and none are equally right.
    assert found.values.tolist() == [2.0, 2.25, 2.25]


def test_scores_that_are_not_numbers_are_the_lowest():
    scores = np.array([np.nan, -np.inf, 3.0, np.inf], dtype=np.float32)
    true = np.array([False, False, True, True])
    found = fit_thresholds(scores, np.zeros(4, dtype=int), true, 1)
    assert np.isfinite(found.values).all()
    assert (found.margins(scores, np.zeros(4, dtype=int)) >= 0).tolist() == true.tolist()
