"""NSCaching with the softmax loss: whole rows are candidates, updated from the loss's scores."""

import pytest
import torch

from nscaching.models import Side
from nscaching.sampling.cache import PADDING
from tests.conftest import assert_follows, graph_of, on_both_paths, random_graph, seeded
from tests.sampling.helpers import (
    SIDES,
    TableScorer,
    batch_of,
    known_answers,
    learn,
    present,
    rows_of,
    sampler_of,
    update,
)

INF = float("inf")


def prepared(graph, scorer=None, **options):
    """Make a sampler of both sides with filled caches, its scorer and its generator."""
    sampler, generator = sampler_of(graph, both_sides=True, **options), seeded(0)
    scorer = TableScorer(graph.num_entities) if scorer is None else scorer
    sampler.prepare(scorer, generator)
    sampler.begin_epoch(0, generator)
    return sampler, scorer, generator


def rows_at(sampler, batch):
    """Return what the caches hold for the questions of a batch, heads first."""
    return torch.cat([sampler.caches[side].ids[batch.rows(side)].long() for side in SIDES])


def snapshot(sampler):
    return {name: part.clone() for name, part in sampler.state().items()}


# Candidates and their weights


def test_both_questions_of_every_triple_have_their_row_and_uniform_entities():
    graph = random_graph()
    sampler, _, generator = prepared(graph, cache_size=5, candidates=7)
    batch = batch_of(graph)
    drawn = sampler.sample(batch, generator)
    b = len(batch)
    assert drawn.replaces_head.tolist() == [True] * b + [False] * b
    assert torch.equal(drawn.targets, torch.cat([batch.heads, batch.tails]))
    assert drawn.ids.shape == (2 * b, 1 + 5 + 7)
    assert drawn.weights.shape == (2 * b, 5 + 7)
    assert torch.equal(drawn.negatives[:, :5], rows_at(sampler, batch))
    assert not drawn.all_entities
    assert drawn.importance is None


def test_the_uniform_part_is_even_over_all_entities():
    graph = graph_of([(0, r, 1) for r in range(800)], entities=7)
    sampler, _, generator = prepared(graph, cache_size=2, candidates=5)
    drawn = sampler.sample(batch_of(graph), generator)
    assert_follows(drawn.negatives[:, 2:], [1.0] * 7)


def slow_weights(negatives, target, size, share):
    """Weigh the candidates of one question one by one."""
    weights = []
    for place, entity in enumerate(negatives):
        nothing = entity in (PADDING, target) or entity in negatives[:place]
        weights.append(0.0 if nothing else 1.0 if place < size else share)
    return weights


@pytest.mark.parametrize("known_positives", ["exclude", "allow"])
@pytest.mark.parametrize(("cache_size", "candidates"), [(5, 7), (1, 3), (4, 1), (6, 0)])
def test_weights_are_one_in_the_row_and_a_share_of_the_rest_outside(
    cache_size, candidates, known_positives
):
    graph = random_graph(entities=12, relations=2, train=140, held_out=0)
    sampler, _, generator = prepared(
        graph, cache_size=cache_size, candidates=candidates, known_positives=known_positives
    )
    drawn = sampler.sample(batch_of(graph), generator)
    share = (12 - cache_size) / max(1, candidates)
    rows = zip(*(part.tolist() for part in (drawn.negatives, drawn.targets)), strict=True)
    expected = [slow_weights(ids, target, cache_size, share) for ids, target in rows]
    torch.testing.assert_close(drawn.weights, torch.tensor(expected))


def test_weights_add_up_to_the_other_entities_where_nothing_repeats():
    """On average: the row, and the entities outside it through those that were drawn."""
    graph = graph_of([(0, 0, 1), (2, 0, 3)], entities=400)
    sampler, _, generator = prepared(graph, cache_size=50, candidates=100, known_positives="allow")
    totals = [sampler.sample(batch_of(graph), generator).weights.sum(1) for _ in range(200)]
    # A draw meets the row with chance 50/400 and an earlier draw of its own now and then.
    distinct = 400 * (1 - (1 - 1 / 400) ** 100)
    expected = 50 + (350 / 100) * distinct * 350 / 400
    assert torch.stack(totals).mean().item() == pytest.approx(expected, rel=0.02)


def test_known_positives_keep_their_weight():
    graph = graph_of([(0, 0, t) for t in range(1, 9)], entities=12)
    sampler, _, generator = prepared(graph, cache_size=2, candidates=12)
    drawn = sampler.sample(batch_of(graph, [0]), generator)
    tail = dict(zip(drawn.negatives[1].tolist(), drawn.weights[1].tolist(), strict=True))
    fresh = drawn.negatives[1, 2:].tolist()
    assert sorted(fresh) == list(range(12))  # as many as there are: each once
    held = set(drawn.negatives[1, :2].tolist())
    for known in range(2, 9):
        assert tail[known] == 1.0
        assert known not in held
    assert drawn.weights[1, 2 + fresh.index(1)] == 0  # the true entity


def test_a_share_is_never_below_one():
    """Where uniform entities are more than there are others, each stands for itself."""
    graph = random_graph(entities=9, relations=2, train=40, held_out=0)
    sampler, _, generator = prepared(graph, cache_size=6, candidates=8)
    weights = sampler.sample(batch_of(graph), generator).weights
    assert set(weights.unique().tolist()) == {0.0, 1.0}


# Updating from the scores of the loss


def step(sampler, batch, scorer, generator):
    """Take a step of the sampler; return what it drew."""
    drawn = sampler.sample(batch, generator)
    update(sampler, batch, scorer, generator)
    learn(sampler, batch, drawn, scorer)
    return drawn


def test_nothing_is_updated_or_scored_before_the_loss():
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, cache_size=4)
    batch, before = batch_of(graph), snapshot(sampler)
    scorer.forget()
    drawn = sampler.sample(batch, generator)
    assert sampler.update_jobs(batch, scorer.queries(batch), generator) == []
    assert all(torch.equal(part, before[name]) for name, part in sampler.state().items())
    assert scorer.asked == {side: [] for side in SIDES}
    learn(sampler, batch, drawn, scorer)
    assert not torch.equal(before["tail_ids"], sampler.state()["tail_ids"])


@on_both_paths
@pytest.mark.parametrize("alpha3", [0.0, 1.0, INF])
def test_rows_keep_candidates_with_the_scores_of_the_loss(alpha3):
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, cache_size=4, candidates=6, alpha3=alpha3)
    batch = batch_of(graph)
    drawn = step(sampler, batch, scorer, generator)
    held = rows_at(sampler, batch)
    for question, ids in enumerate(held.tolist()):
        assert set(present(ids)) <= set(drawn.negatives[question].tolist())
        assert len(set(ids)) == 4
    for side in SIDES:
        for anchor, _, ids, scores in rows_of(sampler, side):
            expected = [scorer.table[side, anchor, entity].half().item() for entity in ids]
            assert scores == expected


def test_the_hardest_candidates_are_kept_at_infinite_temperature():
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, cache_size=4, candidates=25, alpha3=INF)
    batch = batch_of(graph)
    drawn = step(sampler, batch, scorer, generator)
    for side, start in ((Side.HEAD, 0), (Side.TAIL, len(batch))):
        for place, row in enumerate(batch.rows(side).tolist()):
            anchor, relation = batch.anchor(side)[place].item(), batch.relations[place].item()
            offered = set(drawn.negatives[start + place].tolist())
            offered -= known_answers(graph, side, anchor, relation)
            scores = scorer.table[side, anchor]
            hardest = sorted(offered, key=lambda entity, s=scores: -s[entity].item())[:4]
            assert set(sampler.caches[side].ids[row].tolist()) == set(hardest)


def test_rows_outside_the_batch_do_not_change():
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, cache_size=6, candidates=20)
    before, batch = snapshot(sampler), batch_of(graph, [3, 17, 40])
    step(sampler, batch, scorer, generator)
    for side in SIDES:
        changed = (sampler.caches[side].ids != before[f"{side.name.lower()}_ids"]).any(1)
        assert changed.sum() > 0
        assert set(changed.nonzero().flatten().tolist()) <= set(batch.rows(side).tolist())


@on_both_paths
def test_a_row_that_stands_twice_is_updated_by_its_first_question():
    """With dropout the two questions of a row score otherwise; a row is not a mixture of both."""
    graph = graph_of([(0, 0, 1), (0, 0, 2), (3, 0, 4)], entities=30)
    sampler, scorer, generator = prepared(graph, cache_size=5, candidates=9, alpha3=INF)
    batch = batch_of(graph)
    drawn = sampler.sample(batch, generator)
    scores = torch.randn(drawn.ids.shape, generator=seeded(4))
    sampler.learn(batch, drawn, scores, scorer.queries(batch))
    for side, start in ((Side.HEAD, 0), (Side.TAIL, 3)):
        seen = set()
        for place, row in enumerate(batch.rows(side).tolist()):
            if row in seen:
                continue
            seen.add(row)
            found, anchor = {}, batch.anchor(side)[place].item()
            for entity, score in zip(
                drawn.negatives[start + place].tolist(),
                scores[start + place, 1:].tolist(),
                strict=True,
            ):
                if entity not in known_answers(graph, side, anchor, 0):
                    found.setdefault(entity, score)
            hardest = sorted(found, key=lambda entity, f=found: -f[entity])[:5]
            assert set(sampler.caches[side].ids[row].tolist()) == set(hardest)


@pytest.mark.parametrize("lazy", [0, 2])
def test_updates_happen_every_lazy_plus_one_epochs(lazy):
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, lazy=lazy, cache_size=5, candidates=10)
    updated = []
    for epoch in range(6):
        sampler.begin_epoch(epoch, generator)
        before = snapshot(sampler)
        step(sampler, batch_of(graph), scorer, generator)
        if not torch.equal(before["head_ids"], sampler.state()["head_ids"]):
            updated.append(epoch)
    assert updated == list(range(0, 6, lazy + 1))


# A pool that the batch shares


@on_both_paths
def test_a_pool_stands_for_all_entities_that_are_not_in_the_row():
    graph = random_graph()
    sampler, _, generator = prepared(graph, cache_size=4, pool=12)
    batch = batch_of(graph)
    drawn = sampler.sample(batch, generator)
    assert torch.equal(drawn.negatives, rows_at(sampler, batch))
    assert drawn.pool.shape == (12,)
    distinct = len(set(drawn.pool.tolist()))
    for ids, weights in zip(drawn.ids.tolist(), drawn.pool_weights, strict=True):
        seen = set(ids)
        for entity, weight in zip(drawn.pool.tolist(), weights.tolist(), strict=True):
            expected = 0 if entity in seen else graph.num_entities / distinct
            assert weight == pytest.approx(expected)
            seen.add(entity)


def test_a_pool_of_all_entities_is_the_softmax_over_all_of_them():
    graph = random_graph()
    sampler, _, generator = prepared(graph, cache_size=4, pool=graph.num_entities)
    drawn = sampler.sample(batch_of(graph), generator)
    for question, (ids, weights) in enumerate(zip(drawn.ids, drawn.pool_weights, strict=True)):
        counted = torch.zeros(graph.num_entities)
        counted[ids[0]] = 1
        own = drawn.weights[question]
        counted[ids[1:][own > 0]] += own[own > 0]
        counted[drawn.pool] += weights
        assert (counted == 1).all()


def test_uniform_pools_are_even_over_all_entities():
    graph = random_graph()
    sampler, generator = sampler_of(graph, "uniform", both_sides=True, pool=8), seeded(1)
    drawn = [sampler.sample(batch_of(graph, [0]), generator) for _ in range(500)]
    entities = graph.num_entities
    assert_follows(torch.cat([each.pool for each in drawn]), [1 / entities] * entities)
    assert all(each.ids.shape == (2, 1) for each in drawn)


@on_both_paths
def test_rows_get_the_hardest_of_the_pool_without_known_positives():
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, cache_size=4, pool=25, alpha3=INF)
    batch = batch_of(graph)
    drawn = step(sampler, batch, scorer, generator)
    for side, start in ((Side.HEAD, 0), (Side.TAIL, len(batch))):
        rows = batch.rows(side).tolist()
        for place, row in enumerate(rows):
            if row in rows[:place]:  # a row is updated by its first question
                continue
            anchor, relation = batch.anchor(side)[place].item(), batch.relations[place].item()
            scores = scorer.table[side, anchor]
            # N1 of the pool, less the true entity and those of the row, which are offered anyway.
            weights = drawn.pool_weights[start + place]
            pool = [e for e, w in zip(drawn.pool.tolist(), weights, strict=True) if w > 0]
            from_pool = set(sorted(pool, key=lambda entity, s=scores: -s[entity].item())[:4])
            offered = from_pool | set(drawn.negatives[start + place].tolist())
            offered -= known_answers(graph, side, anchor, relation)
            hardest = sorted(offered, key=lambda entity, s=scores: -s[entity].item())[:4]
            assert set(present(sampler.caches[side].ids[row].tolist())) == set(hardest)


def test_the_pool_makes_rows_harder():
    graph = random_graph(entities=60, train=200)
    totals = {}
    for pool in (0, 40):
        sampler, scorer, generator = prepared(
            graph, cache_size=5, candidates=5, pool=pool, alpha3=INF
        )
        step(sampler, batch_of(graph), scorer, generator)
        totals[pool] = sum(cache.totals().mean() for cache in sampler.caches.values())
    assert totals[40] > totals[0] + 0.5


# Checkpoints and special options


def test_a_restored_sampler_continues_as_the_first_would():
    graph = random_graph()
    options = {"cache_size": 5, "candidates": 4, "alpha1": 0.5, "pool": 9}
    sampler, scorer, generator = prepared(graph, **options)
    for epoch in range(2):
        order = sampler.begin_epoch(epoch, generator)
        step(sampler, batch_of(graph, order[:50]), scorer, generator)
    other = sampler_of(graph, both_sides=True, **options)
    other.load_state(snapshot(sampler))
    same = torch.Generator()
    same.set_state(generator.get_state())
    for epoch in (2, 3):
        orders = sampler.begin_epoch(epoch, generator), other.begin_epoch(epoch, same)
        assert torch.equal(*orders)
        batch = batch_of(graph, orders[0][:50])
        one, two = step(sampler, batch, scorer, generator), step(other, batch, scorer, same)
        assert torch.equal(one.ids, two.ids)
        assert torch.equal(one.weights, two.weights)
    assert all(torch.equal(part, other.state()[name]) for name, part in sampler.state().items())


def test_importance_counts_for_both_questions_of_a_triple():
    graph = random_graph()
    sampler, scorer, generator = prepared(graph, alpha1=1.0, importance=True, cache_size=4)
    step(sampler, batch_of(graph), scorer, generator)
    batch = batch_of(graph, sampler.begin_epoch(1, generator)[:30])
    importance = sampler.sample(batch, generator).importance
    assert torch.equal(importance[:30], importance[30:])
    assert torch.equal(importance[:30], sampler.state()["importance"][batch.index])
    assert len(importance.unique()) > 1
