"""A pool of candidates that all rows of a batch share."""

import torch

from nscaching.models import SCORING, Side
from tests.conftest import on_both_paths, random_graph, random_model, seeded
from tests.sampling.helpers import batch_of, sampler_of, update


@on_both_paths
def test_rows_keep_sets_without_known_positives():
    graph = random_graph()
    sampler = sampler_of(graph, pool=6, cache_size=5, alpha3=2.0)
    model = random_model("distmult")
    generator = seeded(0)
    sampler.prepare(model, generator)
    for _ in range(5):
        update(sampler, batch_of(graph), model, generator)
    for side, answers in ((Side.HEAD, graph.rows.head), (Side.TAIL, graph.rows.tail)):
        for row, ids in enumerate(sampler.caches[side].ids.tolist()):
            known = answers.answers[answers.offsets[row] : answers.offsets[row + 1]].tolist()
            held = [entity for entity in ids if entity >= 0]
            assert len(set(held)) == len(held)
            assert not set(held) & set(known)


@on_both_paths
def test_all_rows_of_a_batch_are_offered_the_same():
    graph = random_graph()
    sampler = sampler_of(graph, pool=4, known_positives="allow")
    model = random_model("distmult")
    sampler.prepare(model, seeded(0))
    before = {side: sampler.caches[side].ids.clone() for side in Side}
    sampler.caches[Side.HEAD].ids.fill_(-1)  # so that all a row can hold is what it is offered
    update(sampler, batch_of(graph), model, seeded(1))
    rows = [{e for e in row if e >= 0} for row in sampler.caches[Side.HEAD].ids.tolist()]
    assert all(row == rows[0] for row in rows)
    assert 1 <= len(rows[0]) <= 4
    assert before[Side.TAIL].shape == sampler.caches[Side.TAIL].ids.shape


@on_both_paths
def test_scores_of_the_pool_are_those_of_the_candidates():
    graph = random_graph()
    batch = batch_of(graph)
    pool, places = torch.tensor([4, 7, 9, 2]), torch.tensor([0, 3, 5])
    for name in SCORING:
        model = random_model(name)
        queries = model.queries(batch.heads, batch.relations, batch.tails)
        for side in Side:
            each = queries.score(side, pool.expand(3, -1), places)
            found = queries.score_pool(side, pool, places)
            torch.testing.assert_close(found, each, atol=1e-4, rtol=1e-4)
            everywhere = queries.score_pool(side, pool)
            torch.testing.assert_close(everywhere[places], found, atol=1e-4, rtol=1e-4)
