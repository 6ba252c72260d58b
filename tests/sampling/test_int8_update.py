"""Updating both caches in one pass from the int8 copy: what one side after the other gives."""

import pytest
import torch

from nscaching.kernels.registry import PLAIN, forced
from nscaching.models import Int8Table
from tests.conftest import (
    graph_of,
    random_graph,
    random_model,
    seeded,
    with_one_thread_and_with_all,
)
from tests.sampling.helpers import SIDES, batch_of, sampler_of, update

INF = float("inf")


def hub(entities=60, spokes=45):
    """Make a graph whose first entity has so many heads that they are looked up one by one."""
    spoke = [(i, 0, 0) for i in range(1, spokes + 1)]
    return graph_of([*spoke, (0, 1, 3), (3, 1, 4), (5, 1, 4)], entities=entities, relations=2)


def int8_model(graph, scoring="simple", dim=7):
    model = random_model(scoring, graph.num_entities, len(graph.relations), dim)
    model.int8 = Int8Table(model.entity)
    return model


def updated(graph, model, index, *, one_pass, steps=3, **options):
    """Update fresh caches a few times; return the sampler."""
    sampler = sampler_of(graph, **options)
    sampler.prepare(model, seeded(0))
    if not one_pass:
        sampler._int8_update = None
    generator = seeded(1)
    for _ in range(steps):
        update(sampler, batch_of(graph, index), model, generator)
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
    model = int8_model(graph, scoring)
    options = {"cache_size": 9, "candidates": 14, "alpha3": alpha, "known_positives": known}
    index = [*range(80), 3, 3, 7]  # rows stand several times, by chance and on purpose
    one, two = (updated(graph, model, index, one_pass=way, **options) for way in (True, False))
    assert_same_rows(one, two)


@pytest.mark.parametrize("candidates", [0, 1, 25, 60, 100])
@pytest.mark.parametrize("rescale", ["quantile", "none"])
def test_one_pass_takes_any_number_of_candidates_and_answers(candidates, rescale):
    graph = hub()
    model = int8_model(graph)
    options = {"cache_size": 5, "candidates": candidates, "alpha3": 2.0, "rescale": rescale}
    one, two = (updated(graph, model, None, one_pass=way, **options) for way in (True, False))
    assert_same_rows(one, two)


def test_one_pass_keeps_what_the_plain_path_keeps():
    graph, options = hub(), {"cache_size": 5, "candidates": 20, "alpha3": 2.0}
    model = int8_model(graph)
    fused = updated(graph, model, None, one_pass=True, **options)
    assert fused._int8_update is not None
    with forced(PLAIN):
        plain = updated(graph, model, None, one_pass=True, **options)
    assert plain._int8_update is None
    for side in SIDES:
        assert torch.equal(fused.caches[side].ids, plain.caches[side].ids)
        torch.testing.assert_close(
            fused.caches[side].scores, plain.caches[side].scores, atol=2e-3, rtol=2e-3
        )


def test_rows_outside_the_batch_stay():
    graph = random_graph(entities=40, relations=3, train=60)
    model = int8_model(graph)
    sampler = sampler_of(graph, cache_size=6, candidates=10)
    sampler.prepare(model, seeded(0))
    before = {side: sampler.caches[side].ids.clone() for side in SIDES}
    batch = batch_of(graph, [4, 8])
    update(sampler, batch, model, seeded(1))
    for side in SIDES:
        changed = (sampler.caches[side].ids != before[side]).any(1).nonzero().squeeze(1)
        assert set(changed.tolist()) <= set(batch.rows(side).tolist())
        assert len(changed) > 0


def test_threads_change_nothing():
    graph = random_graph(entities=90, relations=3, train=150)
    model = int8_model(graph)
    one, other = with_one_thread_and_with_all(
        lambda: updated(graph, model, None, one_pass=True, cache_size=9, candidates=14)
    )
    assert_same_rows(one, other)


def calls_of_the_one_pass(model, graph, **options):
    """Update once; return how often both sides were updated in one pass."""
    sampler = sampler_of(graph, cache_size=5, candidates=6, **options)
    sampler.prepare(model, seeded(0))
    calls, one_pass = [], sampler._int8_update
    if one_pass is not None:
        sampler._int8_update = lambda *arguments: calls.append(one_pass(*arguments))
    update(sampler, batch_of(graph), model, seeded(1))
    return len(calls)


def test_only_who_scores_from_an_int8_copy_takes_the_one_pass():
    graph = random_graph()
    model = int8_model(graph, "simple")
    assert calls_of_the_one_pass(model, graph) == 1
    assert calls_of_the_one_pass(model, graph, pool=5) == 0
    assert calls_of_the_one_pass(model, graph, nu=0.5, alpha2=1.0) == 0
    model.int8 = None
    assert calls_of_the_one_pass(model, graph) == 0
