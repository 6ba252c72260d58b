"""Under a bound on memory frequent pairs keep their row and rare ones share some."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import nscaching as ns
from nscaching import UserError
from nscaching.graph.pairs import pair_rows
from nscaching.models import Side
from nscaching.sampling import SamplerOptions, shared_rows
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.sampling.shared_rows import row_counts, share, with_shared_rows
from nscaching.training import TrainConfig
from nscaching.training.memory import plan_memory
from tests.conftest import random_graph

GRAPH = random_graph(entities=300, relations=5, train=6000, seed=3)
SMALL = {"cache_size": 100, "cache_memory": 1}  # 1,724 rows of 608 bytes, for 2,950 pairs or so


@pytest.mark.parametrize("side", ["head", "tail"])
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_every_pair_has_a_row_that_knows_its_positives(side, block, monkeypatch):
    monkeypatch.setattr(shared_rows, "_BLOCK", block)
    rng = np.random.default_rng(0)
    heads = (60 * rng.random((2, 900)) ** 3).astype(np.int32)
    triples = np.stack([heads[0], rng.integers(0, 4, 900), heads[1]], axis=1).astype(np.int32)
    triples = np.unique(triples, axis=0).astype(np.int32)
    pairs = pair_rows(triples, side, 60, 4)
    most = len(pairs) // 3
    rows = share(pairs, most)
    assert len(rows) <= most
    assert sorted(set(rows.of_triple.tolist())) == list(range(len(rows)))
    answer = 0 if side == "head" else 2
    for row in range(len(rows)):
        known = rows.answers[rows.offsets[row] : rows.offsets[row + 1]].tolist()
        assert known == sorted(set(triples[rows.of_triple == row, answer].tolist()))
    without = share(pairs, most, known=False)
    assert np.array_equal(without.of_triple, rows.of_triple)
    assert without.offsets.tolist() == [0] * (len(rows) + 1)
    counts = np.diff(pairs.offsets)
    sharing = np.bincount(rows.of_triple[np.unique(pairs.of_triple, return_index=True)[1]])
    alone = sharing[rows.of_triple] == 1
    assert counts[pairs.of_triple[alone]].min() > np.median(counts)  # the frequent ones
    assert alone.mean() > 0.3
    relations = [set(triples[rows.of_triple == row, 1].tolist()) for row in range(len(rows))]
    assert sum(len(each) > 1 for each in relations) <= 3  # at the ends of relations only


def test_what_is_joined_at_once_is_bounded_however_few_rows_there_are(monkeypatch):
    monkeypatch.setattr(shared_rows, "_BLOCK", 100)
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 8, 1000)
    first = np.concatenate([[0], np.sort(rng.choice(np.arange(1, 1000), 60, replace=False))])
    bounds = shared_rows._bounds(first, counts)
    assert (bounds[0], bounds[-1]) == (0, 1000)
    assert set(bounds[:-1]) <= set(first.tolist())
    blocks = [counts[a:b].sum() for a, b in pairwise(bounds)]
    rows = [counts[a:b].sum() for a, b in pairwise([*first, 1000])]
    assert all(0 < block < 100 + 2 * max(rows) for block in blocks)
    assert len(blocks) > counts.sum() / (100 + 2 * max(rows))


def test_rows_fit_the_bound_and_the_graph_stays_as_it_is():
    options = SamplerOptions(**SMALL)
    head, tail = row_counts(GRAPH, options)
    assert (head + tail) * 608 <= 2**20 < (head + tail + 1) * 608
    seen = with_shared_rows(GRAPH, options)
    assert len(seen.rows.head) <= head < len(GRAPH.rows.head)
    assert len(seen.rows.tail) <= tail < len(GRAPH.rows.tail)
    assert seen.statistics is GRAPH.statistics
    assert seen.train is GRAPH.train
    assert with_shared_rows(GRAPH, SamplerOptions(cache_size=100, cache_memory=100)) is GRAPH
    assert with_shared_rows(GRAPH, SamplerOptions(**SMALL, sampler="uniform")) is GRAPH
    with pytest.raises(UserError, match="too few for 1,000 relations; allow at least 2"):
        row_counts(random_graph(200, 1000, 3000), options)


def test_a_bound_that_is_too_small_is_idle_without_a_cache():
    graph = random_graph(200, 1000, 3000)
    given = {**SMALL, "sampler": "bernoulli"}
    assert with_shared_rows(graph, SamplerOptions(**given)) is graph
    assert plan_memory(graph, TrainConfig(device="cpu", **given)).parts["caches"] == 0


def test_a_shared_row_holds_no_known_positive_of_its_pairs():
    options = SamplerOptions(**SMALL)
    seen = with_shared_rows(GRAPH, options)
    sampler = NSCachingSampler(seen, options, torch.device("cpu"))
    sampler.prepare(None, torch.Generator().manual_seed(0))
    facts = {tuple(triple) for triple in GRAPH.train.tolist()}
    rows = sampler.caches[Side.TAIL].ids[torch.from_numpy(seen.rows.tail.of_triple).long()]
    some = zip(GRAPH.train.tolist()[::20], rows.tolist()[::20], strict=True)
    for (head, relation, _), held in some:
        assert not any((head, relation, tail) in facts for tail in held)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"alpha1": 1.0, "alpha2": 1.0}, {"loss": "softmax"}])
def test_a_run_trains_resumes_and_evaluates_with_shared_rows(tmp_path, options):
    given = {**SMALL, "dim": 8, "progress": "none", "recipe": "paper", "device": "cpu", **options}
    run = ns.train(GRAPH, out=tmp_path / "whole", epochs=2, **given)
    assert all(np.isfinite(run.embeddings()).ravel())
    ns.train(GRAPH, out=tmp_path / "parts", epochs=1, **given)
    again = ns.train(GRAPH, out=tmp_path / "parts", epochs=2, resume=True, progress="none")
    np.testing.assert_array_equal(run.embeddings(), again.embeddings())
    with pytest.raises(UserError, match="was started with cache_memory 1"):
        ns.train(out=tmp_path / "parts", epochs=3, resume=True, cache_memory=2, progress="none")


def test_a_trace_needs_a_row_per_pair():
    with pytest.raises(UserError, match="trace without it"):
        ns.train(GRAPH, epochs=1, trace=True, **SMALL)
