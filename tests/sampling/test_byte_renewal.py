"""Renewing both caches in one pass from bytes: what one side after the other gives, bit by bit."""

import pytest
import torch

from nscaching.models import CompactTable
from nscaching.sampling import cache as cache_module
from nscaching.sampling import nscaching as sampler_module
from tests.conftest import graph_of, random_graph, random_model, seeded
from tests.sampling.helpers import SIDES, batch_of, sampler_of

INF = float("inf")


def hub(entities=60, spokes=45):
    """Make a graph whose first entity has so many heads that they are looked up one by one."""
    spoke = [(i, 0, 0) for i in range(1, spokes + 1)]
    return graph_of([*spoke, (0, 1, 3), (3, 1, 4), (5, 1, 4)], entities=entities, relations=2)


def compact_model(graph, scoring="simple", dim=7):
    model = random_model(scoring, graph.num_entities, len(graph.relations), dim)
    model.compact = CompactTable(model.entity)
    return model


def updated(graph, model, index, *, one_pass, steps=3, **options):
    """Update fresh caches a few times; return the sampler."""
    sampler = sampler_of(graph, **options)
    sampler.prepare(model, seeded(0))
    if not one_pass:
        sampler._renew_from_bytes = None
    generator = seeded(1)
    for _ in range(steps):
        sampler.update(batch_of(graph, index), model, generator)
    return sampler


def assert_same_rows(one, two):
    for side in SIDES:
        assert torch.equal(one.caches[side].ids, two.caches[side].ids)
        assert torch.equal(one.caches[side].scores, two.caches[side].scores)


@pytest.mark.parametrize("scoring", ["distmult", "complex", "simple"])
@pytest.mark.parametrize("known", ["exclude", "allow"])
@pytest.mark.parametrize("alpha", [0.0, 1.0, INF])
def test_one_pass_is_one_side_after_the_other(scoring, known, alpha):
    graph = random_graph(entities=90, relations=3, train=150)
    model = compact_model(graph, scoring)
    options = {"cache_size": 9, "candidates": 14, "alpha3": alpha, "known_positives": known}
    index = [*range(80), 3, 3, 7]  # rows stand several times, by chance and on purpose
    one, two = (updated(graph, model, index, one_pass=way, **options) for way in (True, False))
    assert_same_rows(one, two)


@pytest.mark.parametrize("candidates", [0, 1, 25, 60, 100])
@pytest.mark.parametrize("rescale", ["quantile", "none"])
def test_one_pass_takes_any_number_of_candidates_and_answers(candidates, rescale):
    graph = hub()
    model = compact_model(graph)
    options = {"cache_size": 5, "candidates": candidates, "alpha3": 2.0, "rescale": rescale}
    one, two = (updated(graph, model, None, one_pass=way, **options) for way in (True, False))
    assert_same_rows(one, two)


def test_one_pass_keeps_what_the_plain_path_keeps(monkeypatch):
    graph, options = hub(), {"cache_size": 5, "candidates": 20, "alpha3": 2.0}
    model = compact_model(graph)
    fused = updated(graph, model, None, one_pass=True, **options)
    for module in (cache_module, sampler_module):
        monkeypatch.setattr(module, "HAVE_NUMBA", False)
    plain = updated(graph, model, None, one_pass=True, **options)
    assert plain._renew_from_bytes is None
    for side in SIDES:
        assert torch.equal(fused.caches[side].ids, plain.caches[side].ids)
        torch.testing.assert_close(
            fused.caches[side].scores, plain.caches[side].scores, atol=2e-3, rtol=2e-3
        )


def test_rows_outside_the_batch_stay():
    graph = random_graph(entities=40, relations=3, train=60)
    model = compact_model(graph)
    sampler = sampler_of(graph, cache_size=6, candidates=10)
    sampler.prepare(model, seeded(0))
    before = {side: sampler.caches[side].ids.clone() for side in SIDES}
    batch = batch_of(graph, [4, 8])
    sampler.update(batch, model, seeded(1))
    for side in SIDES:
        changed = (sampler.caches[side].ids != before[side]).any(1).nonzero().squeeze(1)
        assert set(changed.tolist()) <= set(batch.rows(side).tolist())
        assert len(changed) > 0


def test_who_scores_otherwise_is_asked_for_scores():
    graph = random_graph()
    model = compact_model(graph, "simple")
    assert model.byte_tables() is not None
    model.compact = None
    assert model.byte_tables() is None
    distances = random_model("transe")
    distances.compact = CompactTable(distances.entity)
    assert distances.byte_tables() is None
