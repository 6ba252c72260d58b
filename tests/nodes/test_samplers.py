import numpy as np
import pytest
import torch

from nscaching.nodes.config import NodeConfig
from nscaching.nodes.samplers import NODE_SAMPLERS
from nscaching.nodes.training import SkipGram
from nscaching.nodes.walks import Noise, Walker, WalkWindows, Windows
from nscaching.sampling.cache import Cache

from ..conftest import assert_follows, seeded
from .helpers import graph_from, random_edges


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
