from collections import Counter

import networkx as nx
import numpy as np
import pytest
import torch

from nscaching.nodes import NodeConfig, from_networkx
from nscaching.nodes.training import SkipGram
from nscaching.nodes.windows import NODE_SAMPLERS, Noise, Walker, WalkWindows, Windows
from nscaching.sampling.cache import Cache

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
    monkeypatch.setattr("nscaching.nodes.windows._BLOCK", 100)
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


# Negatives ------------------------------------------------------------------------------------


def setting(sampler, nodes=40, seed=0, **options):
    """Return a sampler that is ready, its stream and a model with large random vectors."""
    edges, _ = random_edges(nodes=nodes, edges=2 * nodes, seed=seed)
    graph = graph_from(edges, nodes=nodes)
    config = NodeConfig.from_mapping({"sampler": sampler, "window": 2, **options}, "test")
    walker = Walker(graph, walks_per_node=3, length=9, seed=seed)
    stream = WalkWindows(walker, config.window, config.negatives, 64)
    model = SkipGram(nodes, 8, seeded(seed))
    model.node.mul_(20)
    model.context.mul_(20)
    made = NODE_SAMPLERS[sampler](graph, stream.frequencies(), config)
    made.prepare(model, seeded(seed))
    return graph, stream, model, made


def lone_windows(centre, contexts, count, negatives, width=4):
    """Return the same window many times."""
    targets = np.full((count, width + negatives), -1, dtype=np.int32)
    targets[:, : len(contexts)] = contexts
    weights = np.ones(targets.shape, dtype=np.float32)
    pairs = np.full(count, len(contexts), dtype=np.float32)
    return Windows(np.full(count, centre), pairs, targets, weights, width)


@pytest.mark.parametrize("sampler", list(NODE_SAMPLERS))
@pytest.mark.parametrize("alpha", [0.0, 5.0])
def test_the_windows_own_nodes_are_never_negatives(sampler, alpha):
    _, stream, model, made = setting(sampler, cache_size=10, candidates=10, alpha2=alpha)
    generator = seeded(1)
    found = 0
    for windows in stream.epoch(generator):
        made.sample(windows, model, 0.9, generator)
        made.update(windows, model, generator)
        for row, centre in enumerate(windows.centres):
            own = {centre, *windows.targets[row, : windows.width]} - {-1}
            negatives = [node for node in windows.negatives[row] if node >= 0]
            assert not own & set(negatives)
            found += len(negatives)
    assert found > 0.95 * stream.walker.count * 9 * made.config.negatives


def test_noise_follows_frequency_to_the_power():
    _, stream, model, made = setting("frequency")
    contexts = [3, 8]
    windows = lone_windows(5, contexts, 20_000, 5)
    made.sample(windows, model, 0.0, seeded(0))
    chances = stream.frequencies() ** 0.75
    chances[[5, *contexts]] = 0
    assert_follows(windows.negatives, chances)


def test_an_alias_table_draws_by_weight():
    weights = np.array([0.0, 1.0, 5.0, 0.5, 3.5])
    assert_follows(Noise(weights).draw_plain(50_000, seeded(0)), weights)
    assert_follows(Noise(np.zeros(3)).draw_plain(5_000, seeded(0)), [1, 1, 1])


def test_a_node_that_covers_its_window_has_no_negatives():
    _, _, model, made = setting("frequency", nodes=4, negatives=3)
    windows = lone_windows(0, [1, 2, 3], 10, 3)
    made.sample(windows, model, 0.0, seeded(0))
    assert (windows.negatives == -1).all()


@pytest.mark.parametrize("fresh", ["frequency", "uniform"])
@pytest.mark.parametrize("neighbours", ["allow", "exclude"])
def test_the_cache_is_the_one_of_the_knowledge_graph_side(fresh, neighbours):
    graph, stream, model, made = setting(
        "nscaching",
        cache_size=6,
        candidates=6,
        alpha3=4.0,
        fresh=fresh,
        cached_neighbours=neighbours,
    )
    assert type(made.cache) is Cache
    assert made.cache.ids.shape == (len(graph), 6)
    generator = seeded(1)
    start = made.cache.ids.clone()
    for windows in stream.epoch(generator):
        made.update(windows, model, generator)
    assert not torch.equal(start, made.cache.ids)
    seen = 0
    for row in range(len(graph)):
        held = made.cache.ids[row][made.cache.ids[row] >= 0].tolist()
        near = graph.neighbours[graph.offsets[row] : graph.offsets[row + 1]].tolist()
        assert len(set(held)) == len(held)
        assert row not in held
        seen += len(set(near) & set(held))
    assert (seen > 0) == (neighbours == "allow")


def test_fresh_candidates_follow_the_noise():
    graph, stream, _, made = setting("nscaching", cached_neighbours="exclude")
    drawn = made.noise.candidates(torch.arange(40), 3000, made.known, torch.tensor([5]))[7]
    chances = stream.frequencies() ** 0.75
    near = graph.neighbours[graph.offsets[7] : graph.offsets[8]]
    known = chances[[7, *near]].sum() / chances.sum()
    assert np.mean(drawn == -1) == pytest.approx(known, abs=0.05)
    chances[[7, *near]] = 0
    assert_follows(drawn[drawn >= 0], chances)


def test_updates_make_the_negatives_harder():
    _, stream, model, made = setting(
        "nscaching", cache_size=5, candidates=5, alpha3=20.0, update_every=1
    )
    made.cache.rescore(model.score)
    before = float(made.cache.scores.mean())
    for windows in stream.epoch(seeded(1)):
        made.update(windows, model, seeded(2))
    assert float(made.cache.scores.mean()) > before + 0.2


def test_stored_scores_are_u_v():
    _, stream, model, made = setting("nscaching", cache_size=5, candidates=5, update_every=1)
    windows = next(stream.epoch(seeded(1)))
    made.update(windows, model, seeded(2))
    rows = torch.unique(torch.from_numpy(windows.centres))
    ids = made.cache.ids[rows].long()
    expected = torch.einsum("bd,bkd->bk", model.node[rows], model.context[ids])
    assert torch.allclose(made.cache.scores[rows].float(), expected, rtol=1e-3, atol=1e-5)


def test_updates_may_be_rare():
    _, stream, model, made = setting("nscaching", cache_size=5, candidates=5, update_every=3)
    changed, generator = [], seeded(1)
    for windows in list(stream.epoch(generator))[:6]:
        before = made.cache.ids.clone()
        made.update(windows, model, generator)
        changed.append(not torch.equal(before, made.cache.ids))
    assert changed == [False, False, True, False, False, True]


def test_seedne_raises_its_threshold():
    _, _, model, made = setting("seedne", nodes=200, negatives=2)
    means = []
    for share in (0.0, 0.5, 1.0):
        windows = lone_windows(5, [3], 4000, 2)
        made.sample(windows, model, share, seeded(0))
        chosen = torch.from_numpy(windows.negatives).long()
        scores = model.score(torch.full((4000,), 5), chosen)
        means.append(float(scores.mean()))
    assert means[0] < means[1] - 0.05
    assert means[1] < means[2] - 0.05


def test_seedne_begins_as_plain_noise():
    _, stream, model, made = setting("seedne")
    windows = lone_windows(5, [3], 20_000, 5)
    made.sample(windows, model, 0.0, seeded(0))
    chances = stream.frequencies() ** 0.75
    chances[[5, 3]] = 0
    assert_follows(windows.negatives, chances)
