"""The samplers that the paper's unified view finds within NSCaching, by their distributions.

The graph repeats one small pattern in many relations. The scores do not depend on the relation, so
each relation's rows are an independent copy of the same experiment.
"""

import itertools

import numpy as np
import pytest
import torch

from nscaching.models import Side
from tests.conftest import assert_follows, graph_of, seeded
from tests.sampling.helpers import (
    SIDES,
    TableScorer,
    batch_of,
    sampler_of,
    scores_of,
    sigma,
    update,
)

ENTITIES, COPIES = 8, 2500
PATTERN = [(0, 1), (0, 2)]
GRAPH = graph_of([(h, r, t) for r in range(COPIES) for h, t in PATTERN], entities=ENTITIES)
ALLOWED = {Side.HEAD: [1, 2, 3, 4, 5, 6, 7], Side.TAIL: [0, 3, 4, 5, 6, 7]}
ANCHOR = {Side.HEAD: 1, Side.TAIL: 0}
#: One triple of each relation, so that no two share a row.
BATCH = batch_of(GRAPH, range(0, len(GRAPH.train), len(PATTERN)))


def after_updates(updates=3, **options):
    sampler, scorer, generator = sampler_of(GRAPH, **options), TableScorer(ENTITIES), seeded(11)
    sampler.prepare(scorer, generator)
    for epoch in range(updates):
        sampler.begin_epoch(epoch, generator)
        update(sampler, batch_of(GRAPH), scorer, generator)
    return sampler, scorer, sampler.sample(BATCH, generator)


def of_side(drawn, side):
    """Return which of the copies drew a negative on this side, and the negatives."""
    mine = drawn.replaces_head == (side is Side.HEAD)
    return mine, drawn.negatives[mine].squeeze(1)


def table_of(scorer, side, entities):
    return scorer.table[side, ANCHOR[side], torch.tensor(entities)].double().numpy()


@pytest.mark.parametrize("known_positives", ["exclude", "allow"])
@pytest.mark.parametrize(
    "sampler",
    [
        {"preset": "bernoulli", "cache_size": 3, "candidates": 2},
        {"preset": "bernoulli", "cache_size": 2, "candidates": 50},
        {"preset": "bernoulli"},
        {"name": "bernoulli"},
    ],
)
def test_without_temperatures_negatives_are_uniform_as_bernoulli_draws_them(
    known_positives, sampler
):
    _, _, drawn = after_updates(known_positives=known_positives, **sampler)
    share = GRAPH.statistics.head_probability.mean()
    assert_follows(drawn.replaces_head.long(), [1 - share, share])
    for side in SIDES:
        chances = np.ones(ENTITIES)
        if known_positives == "exclude":
            chances = np.isin(np.arange(ENTITIES), ALLOWED[side]).astype(float)
        assert_follows(of_side(drawn, side)[1], chances)


@pytest.mark.parametrize("rescale", ["quantile", "none"])
def test_uniform_rows_and_a_softmax_within_them_are_kbgan_like(rescale):
    """Every subset of size N1 is equally likely, and within it the negative follows sigma2."""
    sampler, scorer, drawn = after_updates(preset="kbgan", cache_size=2, rescale=rescale)
    for side in SIDES:
        mine, negatives = of_side(drawn, side)
        rows = sampler.row_of_triple[side][BATCH.index][mine]
        assert_picks_from_pairs(sampler.caches[side].ids[rows], negatives, scorer, side, rescale)


def test_self_adversarial_weights_its_candidates_the_same_way():
    """Drawing one of two candidates by its weight is what the preset does with a row of two."""
    sampler, scorer, drawn = after_updates(name="self-adversarial", negatives=2)
    weights = sampler.weigh(drawn, scores_of(scorer, BATCH, drawn))
    pick = torch.multinomial(weights, 1, generator=seeded(3))
    for side in SIDES:
        pairs = drawn.replaces_head == (side is Side.HEAD)
        pairs &= drawn.negatives[:, 0] != drawn.negatives[:, 1]  # drawn with replacement
        picked = drawn.negatives.gather(1, pick)[pairs].squeeze(1)
        assert_picks_from_pairs(drawn.negatives[pairs], picked, scorer, side, "none")


def assert_picks_from_pairs(rows, picked, scorer, side, rescale):
    """Check that all pairs are equally likely, and in each the pick follows sigma with alpha 1."""
    subsets = list(itertools.combinations(ALLOWED[side], 2))
    chances = [sigma(table_of(scorer, side, subset), 1.0, rescale) for subset in subsets]
    cells = []
    for ids, entity in zip(rows.tolist(), picked.tolist(), strict=True):
        subset = tuple(sorted(ids))
        cells.append(2 * subsets.index(subset) + subset.index(entity))
    assert_follows(cells, np.concatenate(chances))


@pytest.mark.parametrize("rescale", ["quantile", "none"])
@pytest.mark.parametrize("alpha3", [0.0, 1.0])
def test_a_row_of_all_entities_is_igan_like(rescale, alpha3):
    """The negative follows sigma2 over everything that is not a training triple."""
    sampler, scorer, drawn = after_updates(preset="igan", alpha3=alpha3, rescale=rescale)
    assert all(cache.size == ENTITIES for cache in sampler.caches.values())
    for side in SIDES:
        chances = np.zeros(ENTITIES)
        chances[ALLOWED[side]] = sigma(table_of(scorer, side, ALLOWED[side]), 1.0, rescale)
        assert_follows(of_side(drawn, side)[1], chances)


def test_infinite_temperatures_and_all_candidates_give_the_hardest_negative():
    _, scorer, drawn = after_updates(
        updates=1, alpha2=float("inf"), alpha3=float("inf"), cache_size=2, candidates=ENTITIES
    )
    for side in SIDES:
        hardest = ALLOWED[side][table_of(scorer, side, ALLOWED[side]).argmax()]
        assert (of_side(drawn, side)[1] == hardest).all()


def test_a_temperature_of_updating_makes_rows_harder_than_uniform():
    uniform, _, _ = after_updates(alpha3=0, cache_size=3, candidates=4)
    harder, _, _ = after_updates(alpha3=3, cache_size=3, candidates=4)
    for side in SIDES:
        assert harder.caches[side].totals().mean() > uniform.caches[side].totals().mean() + 0.5
