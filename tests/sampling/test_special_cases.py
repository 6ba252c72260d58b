"""The samplers that the paper's unified view finds within NSCaching, by their distributions.

The graph repeats one small pattern in many relations. The scores do not depend on the relation, so
each relation's rows are an independent copy of the same experiment.
"""

import itertools

import numpy as np
import pytest
import torch

from nscaching.scoring import Side
from tests.conftest import assert_follows, graph_of, seeded
from tests.sampling.helpers import SIDES, TableScorer, batch_of, sampler_of, sigma

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
        sampler.update(batch_of(GRAPH), scorer, generator)
    return sampler, scorer, sampler.sample(BATCH, scorer, generator)


def of_side(drawn, side):
    """Return which of the copies drew a negative on this side, and the negatives."""
    mine = drawn.replaces_head.squeeze(1) == (side is Side.HEAD)
    return mine, drawn.entities[mine].squeeze(1)


def scores_of(scorer, side, entities):
    return scorer.table[side, ANCHOR[side], torch.tensor(entities)].double().numpy()


@pytest.mark.parametrize("known_positives", ["exclude", "allow"])
@pytest.mark.parametrize(("cache_size", "candidates"), [(3, 2), (2, 50)])
def test_without_temperatures_negatives_are_uniform_as_bernoulli_draws_them(
    known_positives, cache_size, candidates
):
    _, _, drawn = after_updates(
        alpha2=0, alpha3=0, cache_size=cache_size, candidates=candidates,
        known_positives=known_positives,
    )  # fmt: skip
    for side in SIDES:
        chances = np.ones(ENTITIES)
        if known_positives == "exclude":
            chances = np.isin(np.arange(ENTITIES), ALLOWED[side]).astype(float)
        assert_follows(of_side(drawn, side)[1], chances)


@pytest.mark.parametrize("rescale", ["quantile", "none"])
def test_uniform_rows_and_a_softmax_within_them_are_kbgan_like(rescale):
    """Every subset of size N1 is equally likely, and within it the negative follows sigma2."""
    alpha2, size = 1.0, 2
    sampler, scorer, drawn = after_updates(
        alpha2=alpha2, alpha3=0, cache_size=size, candidates=ENTITIES, rescale=rescale
    )
    for side in SIDES:
        mine, negatives = of_side(drawn, side)
        rows = sampler.row_of_triple[side][BATCH.index][mine]
        subsets = list(itertools.combinations(ALLOWED[side], size))
        chances = np.concatenate(
            [sigma(scores_of(scorer, side, s), alpha2, rescale) for s in subsets]
        )
        cells = []
        for ids, negative in zip(
            sampler.caches[side].ids[rows].tolist(), negatives.tolist(), strict=True
        ):
            subset = tuple(sorted(ids))
            cells.append(size * subsets.index(subset) + subset.index(negative))
        assert_follows(cells, chances)


@pytest.mark.parametrize("rescale", ["quantile", "none"])
@pytest.mark.parametrize("alpha3", [0.0, 1.0])
def test_a_row_of_all_entities_is_igan_like(rescale, alpha3):
    """The negative follows sigma2 over everything that is not a training triple."""
    _, scorer, drawn = after_updates(
        alpha2=1.0, alpha3=alpha3, cache_size=ENTITIES, candidates=0, rescale=rescale
    )
    for side in SIDES:
        chances = np.zeros(ENTITIES)
        chances[ALLOWED[side]] = sigma(scores_of(scorer, side, ALLOWED[side]), 1.0, rescale)
        assert_follows(of_side(drawn, side)[1], chances)


def test_infinite_temperatures_and_all_candidates_give_the_hardest_negative():
    _, scorer, drawn = after_updates(
        updates=1, alpha2=float("inf"), alpha3=float("inf"), cache_size=2, candidates=ENTITIES
    )
    for side in SIDES:
        hardest = ALLOWED[side][scores_of(scorer, side, ALLOWED[side]).argmax()]
        assert (of_side(drawn, side)[1] == hardest).all()


def test_a_temperature_of_updating_makes_rows_harder_than_uniform():
    uniform, _, _ = after_updates(alpha3=0, cache_size=3, candidates=4)
    harder, _, _ = after_updates(alpha3=3, cache_size=3, candidates=4)
    for side in SIDES:
        assert harder.caches[side].totals().mean() > uniform.caches[side].totals().mean() + 0.5
