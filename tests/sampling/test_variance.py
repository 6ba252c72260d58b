"""Welford's variance of cached scores, and drawing by score + nu std."""

import numpy as np
import pytest
import torch

from nscaching.errors import UserError
from nscaching.sampling.cache import PADDING, VarianceCache
from tests.conftest import assert_follows, random_graph, seeded
from tests.sampling.helpers import (
    CPU,
    TableScorer,
    batch_of,
    offer_and_keep,
    sampler_of,
    sigma,
    table_score,
    update,
)


def renewed(cache, generator, updates=6):
    """Update all rows a few times with other scores each time; return what each entity scored."""
    seen = {}
    for _ in range(updates):
        rows = torch.arange(len(cache))
        fresh = torch.randint(cache.num_entities, (len(cache), 2), generator=generator)
        table = torch.randn(len(cache), cache.num_entities, generator=generator)
        held = [set(row) - {PADDING} for row in cache.ids.tolist()]
        offer_and_keep(cache, rows, fresh, None, table_score(table), 1.0, generator)
        for i, row in enumerate(cache.ids.tolist()):
            past = {e: seen[i, e] for e in held[i] if (i, e) in seen}
            for entity in set(row) - {PADDING}:
                seen[i, entity] = [*past.get(entity, []), table[i, entity].item()]
    return seen


def test_deviations_are_those_of_the_scores_while_an_entity_stays(generator):
    cache = VarianceCache(5, 4, 9, "quantile", CPU, nu=1.0)
    cache.fill(None, generator)
    seen = renewed(cache, generator)
    std = cache.std(torch.arange(5))
    for i, row in enumerate(cache.ids.tolist()):
        for j, entity in enumerate(row):
            if entity != PADDING:
                assert cache.count[i, j] == len(seen[i, entity])
                assert std[i, j].item() == pytest.approx(np.std(seen[i, entity]), abs=1e-5)


def test_negatives_are_drawn_by_score_plus_nu_deviations(generator):
    cache = VarianceCache(1, 4, 9, "none", CPU, nu=2.0)
    cache.fill(None, generator)
    renewed(cache, generator)
    scores = (cache.scores[0].float() + 2.0 * cache.std(torch.tensor([0]))[0]).double().numpy()
    rows = torch.zeros(20000, dtype=torch.int64)
    drawn = cache.sample_at(torch.rand(20000, 1, generator=generator), rows, 1.5)
    place = (cache.ids[0] == drawn).float().argmax(1)
    assert_follows(place, sigma(scores, 1.5, "none"))


def test_the_sampler_keeps_the_past_in_its_state():
    graph = random_graph()
    sampler = sampler_of(graph, "nscaching", nu=0.5, alpha2=1.0, cache_size=4)
    rng = seeded(0)
    sampler.prepare(TableScorer(25), rng)
    update(sampler, batch_of(graph), TableScorer(25), rng)
    state = {name: tensor.clone() for name, tensor in sampler.state().items()}
    assert state["head_count"].max() == 1
    other = sampler_of(graph, "nscaching", nu=0.5, alpha2=1.0, cache_size=4)
    other.load_state(state)
    assert all(torch.equal(other.state()[name], tensor) for name, tensor in state.items())


def test_nu_is_refused_where_negatives_are_drawn_evenly():
    with pytest.raises(UserError, match="alpha2"):
        sampler_of(random_graph(), "nscaching", nu=0.5)


def test_nu_changes_which_negatives_are_drawn():
    graph = random_graph()
    drawn = []
    for nu in (0.5, 50.0):
        sampler, rng = sampler_of(graph, "nscaching", nu=nu, alpha2=10.0, cache_size=4), seeded(0)
        sampler.prepare(TableScorer(25), rng)
        for scorer in (TableScorer(25), TableScorer(25, seed=1)):
            update(sampler, batch_of(graph), scorer, rng)
        drawn.append(sampler.sample(batch_of(graph), seeded(1)).negatives)
    assert not torch.equal(*drawn)
