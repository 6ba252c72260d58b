import numpy as np
import pytest
import torch

import nscaching as ns
from nscaching.models import Side
from nscaching.sampling import SAMPLERS
from nscaching.sampling.cache import PADDING
from nscaching.sampling.nscaching import NSCachingSampler
from tests.conftest import assert_follows, graph_of, random_graph, seeded
from tests.sampling.helpers import (
    SIDES,
    TableScorer,
    batch_of,
    known_answers,
    masked_sigma,
    present,
    rows_of,
    sampler_of,
    update,
)

INF = float("inf")


def prepared(graph, seed=0, **options):
    """Make a sampler with filled caches, its scorer, and the generator it goes on with."""
    sampler, scorer, generator = (
        sampler_of(graph, **options),
        TableScorer(graph.num_entities),
        seeded(seed),
    )
    sampler.prepare(scorer, generator)
    sampler.begin_epoch(0, generator)
    scorer.forget()
    return sampler, scorer, generator


def snapshot(sampler):
    return {name: part.clone() for name, part in sampler.state().items()}


def unchanged(sampler, before):
    return all(torch.equal(part, before[name]) for name, part in sampler.state().items())


def assert_rows_are_proper(sampler, graph, full=True):
    """Rows are sets without known positives; ``full``: short only where negatives are too few."""
    for side in SIDES:
        for anchor, relation, ids, _ in rows_of(sampler, side):
            entities = present(ids)
            known = known_answers(graph, side, anchor, relation)
            assert len(set(entities)) == len(entities)
            assert not set(entities) & known
            if full:
                assert len(entities) == min(
                    sampler.options.cache_size, graph.num_entities - len(known)
                )


# What the rows hold


def test_there_is_a_row_for_each_distinct_pair():
    graph = random_graph()
    sampler = sampler_of(graph)
    h, r, t = graph.train.T.tolist()
    expected = {Side.HEAD: set(zip(t, r, strict=True)), Side.TAIL: set(zip(h, r, strict=True))}
    for side in SIDES:
        pairs = [(anchor, relation) for anchor, relation, *_ in rows_of(sampler, side)]
        assert len(pairs) == len(set(pairs))
        assert set(pairs) == expected[side]


@pytest.mark.parametrize("alpha3", [0.0, 1.0, INF])
@pytest.mark.parametrize(("cache_size", "candidates"), [(5, 4), (1, 1), (5, 0), (30, 30), (7, 100)])
def test_rows_stay_proper_sets_through_updates(alpha3, cache_size, candidates):
    graph = random_graph(entities=12, relations=2, train=140, held_out=0)
    sampler, scorer, generator = prepared(
        graph, cache_size=cache_size, candidates=candidates, alpha3=alpha3
    )
    assert_rows_are_proper(sampler, graph)
    for _ in range(4):
        for index in torch.split(sampler.begin_epoch(0, generator), 32):
            update(sampler, batch_of(graph, index), scorer, generator)
        assert_rows_are_proper(sampler, graph)


def test_rows_may_hold_known_positives_when_they_are_allowed():
    graph = random_graph(entities=12, relations=2, train=140, held_out=0)
    sampler, scorer, generator = prepared(
        graph, cache_size=5, candidates=5, known_positives="allow"
    )
    update(sampler, batch_of(graph), scorer, generator)
    for side in SIDES:
        rows = list(rows_of(sampler, side))
        assert all(len(set(ids)) == 5 and PADDING not in ids for *_, ids, _ in rows)
        assert any(set(ids) & known_answers(graph, side, a, r) for a, r, ids, _ in rows)


def test_updated_rows_store_the_scores_of_the_scorer():
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, cache_size=6)
    update(sampler, batch_of(graph), scorer, generator)
    for side in SIDES:
        for anchor, _, ids, scores in rows_of(sampler, side):
            for entity, score in zip(present(ids), scores, strict=False):
                assert score == scorer.table[side, anchor, entity].half().item()


def test_stored_scores_stay_as_they_were_when_the_model_moves_on():
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, cache_size=6)
    update(sampler, batch_of(graph), scorer, generator)
    before = snapshot(sampler)
    scorer.table += 5
    sampler.sample(batch_of(graph), generator)
    assert unchanged(sampler, before)


@pytest.mark.parametrize("alpha2", [0.5, INF])
def test_fresh_caches_are_scored_where_negatives_are_drawn_by_score(alpha2):
    graph = random_graph()
    sampler, scorer, _ = prepared(graph, cache_size=6, alpha2=alpha2)
    for side in SIDES:
        for anchor, _, ids, scores in rows_of(sampler, side):
            for entity, score in zip(present(ids), scores, strict=False):
                assert score == scorer.table[side, anchor, entity].half().item()


# Updating


def test_rows_outside_the_batch_do_not_change():
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, cache_size=6, candidates=20)
    before = snapshot(sampler)
    batch = batch_of(graph, [3, 17, 40])
    update(sampler, batch, scorer, generator)
    for side in SIDES:
        touched = set(sampler.row_of_triple[side][batch.index].tolist())
        name = f"{side.name.lower()}_ids"
        for row in range(len(sampler.caches[side])):
            same = torch.equal(sampler.state()[name][row], before[name][row])
            assert same or row in touched
    assert not unchanged(sampler, before)


def test_triples_that_share_a_row_update_it_once():
    graph = graph_of([(0, 0, 1), (0, 0, 2), (0, 0, 3), (4, 0, 1)], entities=9)
    sampler, scorer, generator = prepared(graph, cache_size=3)
    update(sampler, batch_of(graph, [0, 1, 2, 3, 0, 0]), scorer, generator)
    assert sorted(scorer.asked[Side.TAIL]) == [(0, 0), (4, 0)]
    assert sorted(scorer.asked[Side.HEAD]) == [(1, 0), (2, 0), (3, 0)]


@pytest.mark.parametrize("lazy", [0, 1, 2])
def test_updates_happen_every_lazy_plus_one_epochs_from_the_first(lazy):
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, lazy=lazy, cache_size=5, candidates=10)
    updated = []
    for epoch in range(7):
        sampler.begin_epoch(epoch, generator)
        scorer.forget()
        before = snapshot(sampler)
        update(sampler, batch_of(graph), scorer, generator)
        if scorer.asked[Side.TAIL]:
            updated.append(epoch)
        assert unchanged(sampler, before) == (not scorer.asked[Side.TAIL])
    assert updated == list(range(0, 7, lazy + 1))


def test_candidates_that_cover_all_entities_let_the_hardest_of_all_be_kept():
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, cache_size=4, candidates=25, alpha3=INF)
    update(sampler, batch_of(graph), scorer, generator)
    for side in SIDES:
        for anchor, relation, ids, _ in rows_of(sampler, side):
            known = known_answers(graph, side, anchor, relation)
            scores = scorer.table[side, anchor]
            order = [e for e in scores.argsort(descending=True).tolist() if e not in known]
            assert set(ids) == set(order[:4])


def test_no_candidates_keep_the_entities_and_renew_the_scores():
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, cache_size=6, candidates=0)
    before = {side: [set(ids) for *_, ids, _ in rows_of(sampler, side)] for side in SIDES}
    update(sampler, batch_of(graph), scorer, generator)
    for side in SIDES:
        assert [set(ids) for *_, ids, _ in rows_of(sampler, side)] == before[side]
        assert (sampler.caches[side].scores != 0).all()


def test_pair_without_negatives_stays_an_empty_row():
    graph = graph_of([(h, 0, 0) for h in range(5)], entities=5)
    sampler, scorer, generator = prepared(graph, cache_size=3, alpha2=1.0)
    for _ in range(3):
        update(sampler, batch_of(graph), scorer, generator)
        drawn = sampler.sample(batch_of(graph), generator)
        assert (drawn.weights[drawn.replaces_head] == 0).all()
    ((_, _, ids, scores),) = rows_of(sampler, Side.HEAD)
    assert ids == [PADDING] * 3
    assert scores == [0.0] * 3


# Sampling


@pytest.mark.parametrize("negatives", [1, 4])
def test_negatives_come_from_the_row_of_their_triple_and_side(negatives):
    graph = random_graph()
    sampler, _, generator = prepared(graph, cache_size=4, negatives=negatives, alpha2=1.0)
    drawn = sampler.sample(batch_of(graph), generator)
    assert drawn.negatives.shape == (len(graph.train), negatives)
    for i in range(len(graph.train)):
        side = Side.HEAD if drawn.replaces_head[i] else Side.TAIL
        row = sampler.caches[side].ids[sampler.row_of_triple[side][i]].tolist()
        assert set(drawn.negatives[i].tolist()) <= set(row)
        assert drawn.targets[i] == graph.train[i, 0 if side is Side.HEAD else 2]


@pytest.mark.parametrize("rescaling", ["quantile", "none"])
@pytest.mark.parametrize("alpha2", [0.0, 1.0])
def test_negatives_follow_sigma2_over_the_stored_scores(alpha2, rescaling):
    graph = graph_of([(0, 0, 1), (2, 0, 3)], entities=9)
    sampler, scorer, generator = prepared(graph, cache_size=5, alpha2=alpha2, rescale=rescaling)
    update(sampler, batch_of(graph), scorer, generator)
    drawn = sampler.sample(batch_of(graph, [0] * 8000), generator)
    for side in SIDES:
        cache, row = sampler.caches[side], sampler.row_of_triple[side][0]
        chances = np.zeros(9)
        chances[cache.ids[row].numpy()] = masked_sigma(
            cache.scores[row].numpy(), np.ones(5, bool), alpha2, rescaling
        )
        mine = drawn.replaces_head == (side is Side.HEAD)
        assert_follows(drawn.negatives[mine], chances)


def test_sampling_asks_the_model_nothing_and_changes_nothing():
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, alpha2=1.0)
    before = snapshot(sampler)
    sampler.sample(batch_of(graph), generator)
    assert unchanged(sampler, before)
    assert scorer.asked == {side: [] for side in SIDES}


def test_a_step_samples_then_updates_then_moves_the_model(monkeypatch):
    calls, models = [], []

    class Recording(NSCachingSampler):
        name = "recording"

        def begin_epoch(self, epoch, generator):
            self.model = models[-1]
            return super().begin_epoch(epoch, generator)

        def sample(self, batch, generator):
            calls.append(("sample", self.model.entity.clone(), snapshot(self)))
            return super().sample(batch, generator)

        def update_jobs(self, batch, queries, generator):
            calls.append(("update", queries.model.entity.clone(), snapshot(self)))
            return super().update_jobs(batch, queries, generator)

        def learn(self, batch, candidates, scores, queries):
            calls.append(("learn", queries.model.entity.clone(), snapshot(self)))

        def prepare(self, scorer, generator):
            models.append(scorer)
            super().prepare(scorer, generator)

    monkeypatch.setitem(SAMPLERS, "recording", Recording)
    ns.train(
        random_graph(), sampler="recording", scoring="transe", dim=4, epochs=1, batch_size=50,
        device="cpu", valid_every=0, cache_size=5, candidates=10,
    )  # fmt: skip
    assert [call for call, *_ in calls] == ["sample", "update", "learn"] * 3
    for step in range(0, 9, 3):
        (_, before, cache), (_, at_update, cache_at_update), (_, after, cache_after) = calls[
            step : step + 3
        ]
        assert torch.equal(before, at_update)
        assert not torch.equal(before, after)
        assert all(torch.equal(cache[name], cache_at_update[name]) for name in cache)
        assert not torch.equal(cache["tail_ids"], cache_after["tail_ids"])


# Positives


def with_random_scores(graph, **options):
    sampler, _, generator = prepared(graph, cache_size=3, **options)
    for cache in sampler.caches.values():
        cache.scores[:] = torch.randn(cache.scores.shape, generator=seeded(5))
    return sampler, generator


def draws(sampler, generator, times=1500):
    return torch.cat([sampler.begin_epoch(1, generator) for _ in range(times)])


@pytest.mark.parametrize(("alpha1", "epoch"), [(0.0, 0), (0.0, 3), (0.8, 0)])
def test_positives_are_shuffled_in_the_first_epoch_and_without_a_temperature(alpha1, epoch):
    graph = random_graph()
    sampler, generator = with_random_scores(graph, alpha1=alpha1)
    order = sampler.begin_epoch(epoch, generator)
    assert sorted(order.tolist()) == list(range(len(graph.train)))
    assert order.tolist() != sorted(order.tolist())


@pytest.mark.parametrize("rescaling", ["quantile", "none"])
@pytest.mark.parametrize("alpha1", [0.5, 1.0])
def test_positives_are_drawn_with_sigma1_over_the_totals_of_both_rows(alpha1, rescaling):
    graph = graph_of([(0, 0, 1), (0, 0, 2), (3, 0, 1), (4, 1, 5), (5, 1, 6), (6, 0, 7)], entities=9)
    sampler, generator = with_random_scores(graph, alpha1=alpha1, rescale=rescaling)
    totals = np.zeros(6)
    for i in range(6):
        for side in SIDES:
            row = sampler.row_of_triple[side][i]
            totals[i] += sampler.caches[side].scores[row].double().sum().item()
    chances = masked_sigma(totals, np.ones(6, bool), alpha1, rescaling)
    assert chances.max() > 1.4 * chances.min()
    assert_follows(draws(sampler, generator), chances)


def test_an_epoch_of_weighted_positives_repeats_some_and_is_as_long():
    graph = random_graph()
    sampler, generator = with_random_scores(graph, alpha1=1.0)
    order = sampler.begin_epoch(1, generator)
    assert len(order) == len(graph.train)
    assert len(set(order.tolist())) < len(graph.train)


def test_order_of_positives_follows_the_scores_of_the_moment():
    graph = random_graph()
    sampler, generator = with_random_scores(graph, alpha1=30.0, rescale="none")
    for cache in sampler.caches.values():
        cache.scores.zero_()
    favourite = 7
    for side in SIDES:
        sampler.caches[side].scores[sampler.row_of_triple[side][favourite]] = 5.0
    assert (sampler.begin_epoch(1, generator) == favourite).all()


# Checkpoints


OPTIONS = {
    "cache_size": 5, "candidates": 4, "alpha1": 0.5, "alpha2": 1.0, "alpha3": 1.0, "negatives": 2,
}  # fmt: skip


def continued(sampler, graph, scorer, generator, epochs):
    """Go on for some epochs; return everything that was drawn."""
    drawn = []
    for epoch in epochs:
        order = sampler.begin_epoch(epoch, generator)
        drawn.append(order)
        for index in torch.split(order, 50):
            batch = batch_of(graph, index)
            negatives = sampler.sample(batch, generator)
            drawn += [negatives.ids, negatives.replaces_head, negatives.weights]
            update(sampler, batch, scorer, generator)
    return drawn


def restored(sampler, graph, **options):
    """Make a second sampler from a copy of the state of the first."""
    other = sampler_of(graph, **options)
    other.load_state(snapshot(sampler))
    return other


def test_a_restored_sampler_goes_on_as_the_first_would():
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, **OPTIONS)
    continued(sampler, graph, scorer, generator, range(2))
    other = restored(sampler, graph, **OPTIONS)
    same_generator = torch.Generator()
    same_generator.set_state(generator.get_state())
    expected = continued(sampler, graph, scorer, generator, range(2, 4))
    ours = continued(other, graph, scorer, same_generator, range(2, 4))
    assert all(torch.equal(a, b) for a, b in zip(expected, ours, strict=True))
    assert unchanged(other, snapshot(sampler))


def test_a_sampler_restored_in_the_middle_of_a_lazy_epoch_stays_lazy():
    """A run that is stopped in an epoch goes on without a call of ``begin_epoch``."""
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, lazy=1)
    sampler.begin_epoch(1, generator)
    other = restored(sampler, graph, lazy=1)
    scorer.forget()
    update(other, batch_of(graph), scorer, generator)
    assert scorer.asked == {side: [] for side in SIDES}


def test_state_of_another_size_is_refused():
    graph = random_graph()
    state = sampler_of(graph, cache_size=5).state()
    with pytest.raises(RuntimeError):
        sampler_of(graph, cache_size=6).load_state(state)
