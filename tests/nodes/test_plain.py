"""The plain forms of walks and of the skip-gram step against the compiled ones."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from nscaching.kernels import availability
from nscaching.nodes import embed_nodes, plain
from nscaching.nodes.training import SkipGram, SkipGramStep
from nscaching.nodes.windows import Noise, Walker, WalkWindows

from ..conftest import seeded
from .helpers import graph_from, random_edges, two_cliques
from .test_training import some_windows
from .test_windows import setting


@pytest.fixture
def both(monkeypatch):
    """Do something with the compiled kernels, and again without."""

    def run(work):
        found = []
        for compiled in (True, False):
            monkeypatch.setattr(availability, "HAVE_NUMBA", compiled)
            found.append(work())
        return found

    return run


@pytest.mark.parametrize(("p", "q"), [(1, 1), (0.25, 0.25), (4, 0.5), (0.01, 2), (100, 1000)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_walks_are_the_same(both, p, q, weighted, directed):
    edges, weights = random_edges(nodes=25, edges=60)
    graph = graph_from(edges, nodes=27, weights=weights if weighted else None, directed=directed)

    def walks():
        walker = Walker(graph, walks_per_node=8, length=15, p=p, q=q, seed=4)
        return walker.walk(np.arange(walker.count)), walker.frequencies()

    (compiled, counted), (numpy, counted_plain) = both(walks)
    assert np.array_equal(compiled, numpy)
    assert np.array_equal(counted, counted_plain)


def test_a_hub_that_refuses_every_proposal_is_left_by_the_definition_in_both_forms(both):
    graph = graph_from([(0, node) for node in range(1, 60)])
    walks = [w.walk(np.arange(w.count)) for w in both(lambda: Walker(graph, p=1000, q=1, seed=2))]
    assert np.array_equal(*walks)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_way_back_is_found_in_the_row_of_a_hub(both, weighted):
    """Its place in the row, with the weight of it, decides how often a walk returns."""
    edges = [(hub, node) for hub in (0, 150, 299) for node in range(300) if node != hub]
    weights = np.linspace(0.1, 5, len(edges)) if weighted else None
    for directed in (False, True):  # of a directed star nothing leads back
        graph = graph_from(edges, nodes=300, weights=weights, directed=directed)
        made = both(lambda graph=graph: Walker(graph, length=20, p=0.1, q=2, seed=1))
        assert np.array_equal(*(walker.walk(np.arange(walker.count)) for walker in made))


def test_windows_are_the_same(both):
    edges, _ = random_edges(nodes=12, edges=20)
    walker = Walker(graph_from(edges, nodes=14), walks_per_node=3, length=10)
    walks = walker.walk(np.arange(walker.count))
    stream = WalkWindows(walker, 3, 2, 40)
    one, two = both(lambda: stream.windows(walks))
    used = one.targets[:, : one.width] >= 0
    assert np.array_equal(one.centres, two.centres)
    assert np.array_equal(one.pairs, two.pairs)
    assert np.array_equal(one.targets[:, : one.width], two.targets[:, : two.width])
    assert np.array_equal(one.weights[:, : one.width][used], two.weights[:, : two.width][used])


def test_the_noise_is_the_same(both):
    weights = np.random.default_rng(0).exponential(size=50)
    one, two = both(lambda: Noise(weights))
    assert np.array_equal(one.alias, two.alias)
    assert np.allclose(one.threshold, two.threshold)


@pytest.mark.parametrize("sampler", ["frequency", "nscaching", "seedne"])
@pytest.mark.parametrize("alpha", [0.0, 5.0])
def test_samplers_draw_the_same(both, sampler, alpha):
    def drawn():
        _, stream, model, made = setting(
            sampler, cache_size=8, candidates=8, alpha2=alpha, alpha3=0.0, update_every=1
        )
        generator, found = seeded(3), []
        for windows in stream.epoch(generator):
            made.sample(windows, model, 0.5, generator)
            made.update(windows, model, generator)
            found.append(windows.negatives.copy())
        return np.concatenate(found)

    one, two = both(drawn)
    assert one.shape == two.shape
    assert np.mean(one == two) > 0.999  # scores differ in their last bits


@pytest.mark.parametrize("tied", [False, True])
def test_steps_move_the_tables_alike(both, tied):
    def stepped():
        model = SkipGram(15, 6, seeded(0), tied=tied)
        step = SkipGramStep(model, 0.01, 1e-3, lazy=False)
        losses = [step(some_windows(seed=seed)) for seed in range(4)]
        return model, losses

    (one, losses), (two, plain_losses) = both(stepped)
    assert torch.allclose(one.node, two.node, atol=1e-5)
    assert torch.allclose(one.context, two.context, atol=1e-5)
    assert losses == pytest.approx(plain_losses, rel=1e-4)


def test_every_kernel_has_a_plain_form():
    from nscaching.kernels import skipgram_cpu, walks_cpu

    for module in (walks_cpu, skipgram_cpu):
        for name, value in vars(module).items():
            if hasattr(value, "py_func") and value.__module__ == module.__name__:
                assert name.startswith("_") or callable(getattr(plain, name)), name
    assert skipgram_cpu.LOSS_EVERY == plain.LOSS_EVERY
    assert skipgram_cpu._REDRAWS == plain.REDRAWS
    assert walks_cpu._ATTEMPTS == plain.ATTEMPTS


@pytest.mark.slow
def test_without_kernels_nothing_is_compiled_and_the_outcome_is_the_same(tmp_path):
    script = (
        "import sys, numpy as np\n"
        "from nscaching.nodes import embed_nodes\n"
        "from tests.nodes.helpers import two_cliques\n"
        "made = embed_nodes(two_cliques(), dim=8, epochs=1, walks_per_node=2, walk_length=10,"
        " progress='none')\n"
        "assert 'nscaching.kernels.walks_cpu' not in sys.modules\n"
        "assert 'nscaching.kernels.skipgram_cpu' not in sys.modules\n"
        f"np.save({str(tmp_path / 'v.npy')!r}, made.vectors)\n"
    )
    environment = {**os.environ, "NSCACHING_PLAIN": "1"}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True)
    assert run.returncode == 0, run.stderr.decode()
    options = {"dim": 8, "epochs": 1, "walks_per_node": 2, "walk_length": 10}
    compiled = embed_nodes(two_cliques(), progress="none", **options)
    assert np.allclose(np.load(tmp_path / "v.npy"), compiled.vectors, atol=1e-3)
