"""Leaking test facts against a slow twin, on graphs made for it and random ones."""

import numpy as np
import pytest

from nscaching.evaluation.leakage import STRONG, find_leakage
from tests.conftest import graph_of, random_graph


def slow_leaks(graph, split="test"):
    """Return the leaking facts, from the definition."""
    train = {tuple(fact) for fact in graph.train.tolist()}
    by_relation = {r: {(h, t) for h, s, t in train if s == r} for r in range(graph.num_relations)}

    def strong(r, other, turned):
        if r == other and not turned:
            return False
        mine = by_relation[r]
        theirs = {(t, h) for h, t in by_relation[other]} if turned else by_relation[other]
        largest = max(len(mine), len(theirs))
        return bool(mine & theirs) and len(mine & theirs) >= STRONG * largest

    leaks = []
    for h, r, t in graph.split(split).tolist():
        for other in by_relation:
            if strong(r, other, False) and (h, other, t) in train:
                leaks.append((h, r, t))
                break
            if strong(r, other, True) and (t, other, h) in train:
                leaks.append((h, r, t))
                break
    return leaks


@pytest.mark.parametrize("seed", range(4))
def test_counts_equal_those_of_loops(seed):
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, 12, (60, 2))
    rows = [(h, 0, t) for h, t in pairs.tolist()]
    rows += [(t, 1, h) for h, t in pairs[: 45 - 5 * seed].tolist()]
    rows += [(h, 2, t) for h, t in pairs[10:50].tolist()]
    rows += [(h, 3, t) for h, t in rng.integers(0, 12, (30, 2)).tolist()]
    rows = list(dict.fromkeys(rows))
    order = rng.permutation(len(rows))
    split = [rows[i] for i in order[:20]], [rows[i] for i in order[20:]]
    graph = graph_of(split[1], test=split[0], entities=12)
    found = find_leakage(graph)
    assert found.leaked == len(slow_leaks(graph))
    assert found.facts == 20


def test_inverses_are_found_and_said():
    train = [(h, 0, h + 10) for h in range(10)] + [(h + 10, 1, h) for h in range(9)]
    graph = graph_of(train, test=[(9 + 10, 1, 9), (3, 0, 15)], entities=20)
    found = find_leakage(graph)
    assert (found.leaked, found.share) == (1, 0.5)
    assert {(*sorted(pair[:2]), pair[2]) for pair in found.pairs} == {
        (*sorted(graph.relations[:2]), "inverse")
    }
    assert "50% of the test facts" in found.remark
    assert found.as_dict()["leaked"] == 1


def test_a_symmetric_relation_is_its_own_inverse():
    train = [(h, 0, h + 1) for h in range(0, 20, 2)] + [(h + 1, 0, h) for h in range(0, 18, 2)]
    graph = graph_of(train, test=[(19, 0, 18)], entities=20)
    assert "is symmetric" in find_leakage(graph).remark


def test_a_graph_without_overlap_says_nothing():
    graph = graph_of([(h, 0, h + 1) for h in range(9)], test=[(0, 0, 5)], entities=10)
    assert find_leakage(graph).remark is None
    assert find_leakage(graph_of([(0, 0, 1)], entities=2)).remark is None
    assert find_leakage(random_graph()).leaked == len(slow_leaks(random_graph()))
