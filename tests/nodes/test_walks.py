from collections import Counter

import networkx as nx
import numpy as np
import pytest

from nscaching.nodes import from_networkx, walks
from nscaching.nodes.walks import Walker, WalkWindows

from ..conftest import assert_follows, seeded
from .helpers import graph_from, random_edges


def step_chances(graph, before, here, p, q):
    """Return the chance of each node to come next, straight from Node2vec's definition."""
    weight = np.zeros((len(graph), len(graph)))
    for at, (a, b) in enumerate(graph.arcs()):
        weight[a, b] = 1.0 if graph.weights is None else graph.weights[at]
    chances = weight[here].copy()
    if before is not None:
        for node in range(len(graph)):
            if node == before:
                chances[node] /= p
            elif weight[before, node] == 0:
                chances[node] /= q
    return chances / chances.sum()


def transitions(graph, p, q, walks_per_node=400, length=12, seed=3):
    """Return what came next after each pair of nodes."""
    walker = Walker(graph, walks_per_node=walks_per_node, length=length, p=p, q=q, seed=seed)
    found = {}
    for block in walker.blocks():
        for row in block:
            nodes = row[row >= 0].tolist()
            found.setdefault((None, nodes[0]), []).extend(nodes[1:2])
            for before, here, following in zip(nodes, nodes[1:], nodes[2:]):  # noqa: B905
                found.setdefault((before, here), []).append(following)
    return found


@pytest.mark.parametrize(
    ("p", "q"), [(1, 1), (0.25, 0.25), (4, 0.5), (0.01, 2), (100, 1000), (0.5, 1000)]
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_transitions_follow_the_definition(p, q, weighted, directed):
    edges, weights = random_edges(nodes=9, edges=18, seed=1)
    graph = graph_from(edges, nodes=9, weights=weights if weighted else None, directed=directed)
    checked = 0
    for (before, here), drawn in transitions(graph, p, q).items():
        if len(drawn) >= 300:
            assert_follows(drawn, step_chances(graph, before, here, p, q))
            checked += 1
    assert checked >= 5


def test_a_hub_is_left_by_the_definition_too():
    graph = from_networkx(nx.star_graph(400))
    drawn = transitions(graph, p=0.001, q=1, walks_per_node=20, length=20)
    back = [before == following for (before, here), nodes in drawn.items() if before is not None
            for following in nodes if here == 0]  # fmt: skip
    chance = 1000 / (1000 + 399)
    assert np.mean(back) == pytest.approx(
        chance, abs=5 * (chance * (1 - chance) / len(back)) ** 0.5
    )


def test_walks_start_everywhere_and_follow_edges():
    edges, _ = random_edges()
    graph = graph_from(edges, nodes=30)
    walker = Walker(graph, walks_per_node=3, length=7, p=0.5, q=2)
    every = np.concatenate(list(walker.blocks()))
    assert Counter(every[:, 0].tolist()) == dict.fromkeys(range(30), 3)
    known = {tuple(arc) for arc in graph.arcs().tolist()}
    for row in every.tolist():
        nodes = [node for node in row if node >= 0]
        assert all(pair in known for pair in zip(nodes, nodes[1:]))  # noqa: B905, RUF007


def test_a_walk_ends_where_there_is_no_way_out():
    graph = graph_from([(0, 1), (1, 2)], nodes=4, directed=True)
    every = Walker(graph, walks_per_node=1, length=5, p=0.5, q=0.5).walk(np.arange(4))
    assert every.tolist() == [
        [0, 1, 2, -1, -1],
        [1, 2, -1, -1, -1],
        [2, -1, -1, -1, -1],
        [3, -1, -1, -1, -1],
    ]


def test_a_walk_is_the_same_whatever_is_walked_beside_it():
    edges, weights = random_edges()
    walker = Walker(graph_from(edges, nodes=30, weights=weights), p=0.5, q=2, seed=9)
    numbers = np.arange(walker.count)
    every = walker.walk(numbers)
    chosen = np.random.default_rng(0).permutation(numbers)[:50]
    assert np.array_equal(walker.walk(chosen), every[chosen])
    other = Walker(walker.graph, p=0.5, q=2, seed=10).walk(numbers)
    assert not np.array_equal(other, every)


def test_frequencies_count_every_place(monkeypatch):
    monkeypatch.setattr(walks, "_BLOCK", 100)
    edges, _ = random_edges()
    walker = Walker(graph_from(edges, nodes=32), walks_per_node=4, length=9)
    every = np.concatenate(list(walker.blocks()))
    counts = np.bincount(every[every >= 0], minlength=32)
    assert np.array_equal(walker.frequencies(), counts)


def stream(window=3, negatives=2, batch_size=40, nodes=30, **how):
    edges, _ = random_edges()
    walker = Walker(graph_from(edges, nodes=nodes), walks_per_node=2, length=11, **how)
    return WalkWindows(walker, window, negatives, batch_size)


def slow_windows(walks, window):
    """Return (centre, counts of what stands around it) for every place, by the definition."""
    found = []
    for row in walks.tolist():
        nodes = [node for node in row if node >= 0]
        if len(nodes) < 2:
            continue
        for at, centre in enumerate(nodes):
            around = nodes[max(0, at - window) : at] + nodes[at + 1 : at + 1 + window]
            found.append((centre, Counter(around)))
    return found


def test_windows_hold_what_the_definition_says():
    source = stream(nodes=32)  # two nodes have no edge
    walks = source.walker.walk(np.arange(source.walker.count))
    made = source.windows(walks)
    expected = slow_windows(walks, 3)
    assert len(made.centres) == len(expected)
    for row, (centre, counts) in enumerate(expected):
        held = made.targets[row, : made.width]
        used = int((held >= 0).sum())
        assert made.centres[row] == centre
        assert (held[:used] >= 0).all()
        weights = made.weights[row, :used]
        assert dict(zip(held[:used].tolist(), weights.tolist(), strict=True)) == counts
        assert made.pairs[row] == counts.total()


def test_an_epoch_goes_through_all_walks_once_in_a_new_order():
    source = stream()
    everything = slow_windows(source.walker.walk(np.arange(source.walker.count)), 3)
    orders = []
    for seed in (0, 1):
        batches = list(source.epoch(seeded(seed)))
        assert len(batches) == source.steps
        centres = np.concatenate([batch.centres for batch in batches])
        assert Counter(centres.tolist()) == Counter(centre for centre, _ in everything)
        orders.append(centres)
    assert not np.array_equal(*orders)


def test_walks_do_not_depend_on_the_order_of_training():
    one, two = (sum(b.pairs.sum() for b in stream().epoch(seeded(s))) for s in (0, 5))
    assert one == two
