"""A pool of candidates that all rows of a batch share."""

import torch

from nscaching.models import Side

from ..conftest import on_both_paths, random_graph, random_model, seeded
from .helpers import batch_of, sampler_of


@on_both_paths
def test_rows_keep_sets_without_known_positives():
    graph = random_graph()
    sampler = sampler_of(graph, pool=True, cache_size=5, candidates=6, alpha3=2.0)
    model = random_model("distmult")
    generator = seeded(0)
    sampler.prepare(model, generator)
    for _ in range(5):
        sampler.update(batch_of(graph), model, generator)
    for side, answers in ((Side.HEAD, graph.rows.head), (Side.TAIL, graph.rows.tail)):
        for row, ids in enumerate(sampler.caches[side].ids.tolist()):
            known = answers.answers[answers.offsets[row] : answers.offsets[row + 1]].tolist()
            held = [entity for entity in ids if entity >= 0]
            assert len(set(held)) == len(held)
            assert not set(held) & set(known)


@on_both_paths
def test_all_rows_of_a_batch_are_offered_the_same():
    graph = random_graph()
    sampler = sampler_of(graph, pool=True, candidates=4, known_positives="allow")
    model = random_model("distmult")
    sampler.prepare(model, seeded(0))
    before = {side: sampler.caches[side].ids.clone() for side in Side}
    sampler.caches[Side.HEAD].ids.fill_(-1)  # so that all a row can hold is what it is offered
    sampler.update(batch_of(graph), model, seeded(1))
    rows = [{e for e in row if e >= 0} for row in sampler.caches[Side.HEAD].ids.tolist()]
    assert all(row == rows[0] for row in rows)
    assert 1 <= len(rows[0]) <= 4
    assert before[Side.TAIL].shape == sampler.caches[Side.TAIL].ids.shape


def test_scores_of_the_pool_are_those_of_the_candidates():
    for name in ("transh", "complex", "rotate"):
        model = random_model(name)
        anchor, relation = torch.tensor([0, 3, 5]), torch.tensor([1, 0, 2])
        pool = torch.tensor([4, 7, 9, 2])
        each = model.score_candidates(Side.TAIL, anchor, relation, pool.expand(3, -1))
        torch.testing.assert_close(
            model.score_pool(Side.TAIL, anchor, relation, pool), each, atol=1e-5, rtol=1e-5
        )
