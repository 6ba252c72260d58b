"""Valid and test are held out fairly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph, load_graph, split_triples
from tests.conftest import counting_steps

TRIPLES = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 2), st.integers(0, 11)), max_size=80, unique=True
)


def pairs(triples):
    return {frozenset((h, t)) for h, _, t in triples.tolist()}


@settings(max_examples=200)
@given(TRIPLES, st.floats(0, 0.49), st.integers(0, 9))
def test_a_split_is_fair(triples, share, seed):
    array = np.array(triples, dtype=np.int32).reshape(-1, 3)
    train, valid, test = split_triples(array, 12, 3, share, seed)
    joined = sorted(train.tolist() + valid.tolist() + test.tolist())
    assert joined == sorted(array.tolist())
    held = np.concatenate([valid, test])
    assert set(held[:, [0, 2]].flat) <= set(train[:, [0, 2]].flat)
    assert set(held[:, 1].tolist()) <= set(train[:, 1].tolist())
    assert not pairs(train) & pairs(valid)
    assert not pairs(train) & pairs(test)
    assert not pairs(valid) & pairs(test)
    wanted = round(share * len(array))
    assert len(valid) <= wanted
    assert len(test) <= wanted


def dense(entities=60):
    heads, tails = np.triu_indices(entities, 1)
    relation = (heads + tails) % 3
    once = np.column_stack([heads, relation, tails])
    return np.concatenate([once, once[::3][:, [2, 1, 0]]]).astype(np.int32)


def test_a_dense_graph_gives_what_was_asked_for():
    triples = dense()
    train, valid, test = split_triples(triples, 60, 3, 0.1, 0)
    wanted = round(0.1 * len(triples))
    assert len(valid) == len(test) == wanted
    assert train.flags.c_contiguous
    assert train.dtype == np.int32


def test_the_seed_decides():
    triples = dense()
    first, again, other = (split_triples(triples, 60, 3, 0.1, seed)[2] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_group_too_large_for_the_share_does_not_block_the_others():
    parallel = [[0, relation, 1] for relation in range(50)]
    ring = [[a, 0, b] for a in range(2, 30) for b in range(a + 1, 30)]
    triples = np.array(parallel + ring, dtype=np.int32)
    _, valid, test = split_triples(triples, 30, 50, 0.05, 0)
    wanted = round(0.05 * len(triples))
    assert len(valid) == len(test) == wanted
    assert frozenset((0, 1)) not in pairs(np.concatenate([valid, test]))


def test_a_tree_cannot_spare_anything_and_says_so():
    graph = KnowledgeGraph.from_triples([("root", "r", f"leaf{i}") for i in range(20)])
    split = load_graph(graph, split=0.2)
    assert len(split.train) == 20
    assert len(split.valid) == len(split.test) == 0
    assert "No triple was held out for valid and test" in split.notes[-1]


def test_the_usual_share_stops_where_more_facts_would_not_narrow_the_interval(monkeypatch):
    graph = KnowledgeGraph.from_triples(
        [(f"{a}", "r", f"{b}") for a in range(20) for b in range(a)]
    )
    assert len(load_graph(graph, split=None).valid) == round(0.05 * 190)
    monkeypatch.setattr("nscaching.graph.splitting.USUALLY_ENOUGH", 4)
    usual = load_graph(graph, split=None)
    assert len(usual.valid) == len(usual.test) == 4
    assert len(load_graph(graph, split=0.1).valid) == 19


def test_as_many_as_possible_from_a_cycle():
    """A cycle of 8 needs at least 4 edges to touch every node, so up to 4 are spare."""
    cycle = np.array([[i, 0, (i + 1) % 8] for i in range(8)], dtype=np.int32)
    train, valid, test = split_triples(cycle, 8, 1, 0.49, 0)
    assert len(train) <= 6
    assert abs(len(valid) - len(test)) <= 1


@pytest.mark.parametrize("share", [-0.1, 0.5, 1.0, float("nan")])
def test_a_share_out_of_range_is_refused(share):
    graph = KnowledgeGraph.from_triples([("a", "r", "b")])
    with pytest.raises(UserError, match="at least 0 and less than"):
        load_graph(graph, split=share)
    with pytest.raises(ValueError, match="share"):
        split_triples(graph.train, 2, 1, share, 0)


def test_a_graph_with_its_own_test_is_not_split():
    graph = KnowledgeGraph.from_triples([("a", "r", "b")], test=[("b", "r", "a")])
    with pytest.raises(UserError, match="of its own"):
        load_graph(graph, split=0.1)
    assert load_graph(graph) is graph


def test_many_triples_are_split_without_a_loop_over_them():
    rng = np.random.default_rng(0)
    triples = rng.integers(0, 10_000, (100_000, 3)).astype(np.int32)
    triples[:, 1] %= 50
    made, steps = counting_steps(lambda: split_triples(triples, 10_000, 50, 0.05, 0))
    assert [len(part) for part in made] == [90_000, 5_000, 5_000]
    assert steps < 10_000
