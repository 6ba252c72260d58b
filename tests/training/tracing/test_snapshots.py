"""Rows by name, the examples where none is named, and the recall of the hardest."""

import pytest
import torch

from nscaching.models import Side
from nscaching.training.tracing.snapshots import (
    RECALL_ROWS,
    example_rows,
    find_row,
    recall_of_the_hardest,
)

from ...conftest import graph_of, random_graph
from ...training.helpers import ring, train
from .helpers import traced_trainer


def test_each_of_the_frequent_relations_gives_the_row_with_most_held_out_answers():
    common = [(0, 0, t) for t in (1, 2, 3)] + [(4, 0, t) for t in (1, 2, 5, 6)]
    rare = [(1, 1, 2), (2, 1, 3)]
    once = [(5, 2, 6)]
    graph = graph_of(common + rare + once, valid=[(0, 0, 6)], test=[(0, 0, 5)])
    first, second = example_rows(graph, count=2)
    assert (first.text, first.side) == ("e0|r0|?", Side.TAIL)  # two held out; e4 has more in train
    assert second.relation == 1


def test_an_example_is_what_its_name_says():
    graph = random_graph()
    rows = example_rows(graph)
    assert len(rows) == 3
    assert rows == [find_row(graph, row.text) for row in rows]


def test_a_traced_run_without_rows_shows_examples_and_one_without_a_cache_does_not():
    seen = {
        sampler: [line["event"] for line in train(ring(), sampler=sampler, trace=True).trace]
        for sampler in ("nscaching", "uniform")
    }
    assert "row" in seen["nscaching"]
    assert set(seen["uniform"]) == {"epoch"}


def slow_recall(trainer, seed):
    """Rank all entities of every row, one row after another."""
    graph, model, sampler = trainer.graph, trainer.model, trainer.sampler
    known = {tuple(triple) for triple in graph.train.tolist()}
    shares = []
    for side, cache in sampler.caches.items():
        rows = torch.randperm(len(cache.ids), generator=torch.Generator().manual_seed(seed))
        for row in rows[: RECALL_ROWS // 2].tolist():
            held = {entity for entity in cache.ids[row].tolist() if entity >= 0}
            anchor, relation = int(sampler.anchor[side][row]), int(sampler.relation[side][row])
            scored = []
            for entity in range(graph.num_entities):
                head = side is Side.HEAD
                triple = (entity, relation, anchor) if head else (anchor, relation, entity)
                if sampler.known is None or triple not in known:
                    score = model.score(*(torch.tensor([each]) for each in triple))
                    scored.append((float(score), entity))
            hardest = {entity for _, entity in sorted(scored, reverse=True)[: len(held)]}
            if held:
                shares.append(len(held & hardest) / len(held))
    return sum(shares) / len(shares)


@pytest.mark.parametrize("known_positives", ["exclude", "allow"])
@pytest.mark.parametrize("scoring", ["distmult", "transe"])
def test_the_recall_is_the_share_of_rows_among_the_hardest(known_positives, scoring):
    graph = random_graph(entities=25, relations=2, train=120)
    options = {"cache_size": 5, "candidates": 5, "known_positives": known_positives}
    trainer = traced_trainer(graph, scoring=scoring, epochs=3, **options)
    trainer.run(resume=False)
    found = recall_of_the_hardest(trainer.model, trainer.sampler, 3)
    assert found == pytest.approx(slow_recall(trainer, 3), abs=1e-6)
    assert 0 < found < 1


def test_the_recall_rises_with_offers_and_is_one_where_the_row_holds_all():
    graph = random_graph(entities=40, relations=2, train=150)
    found = {}
    for candidates in (1, 35):
        trainer = traced_trainer(
            graph, cache_size=8, candidates=candidates, alpha3=100.0, epochs=6, scoring="simple"
        )
        trainer.run(resume=False)
        lines = [line for line in trainer.tracer.lines if line["event"] == "epoch"]
        found[candidates] = lines[-1]["recall"]
    assert found[35] > found[1] + 0.1
    everything = traced_trainer(graph, cache_size=40, candidates=5, epochs=1)
    everything.run(resume=False)
    assert recall_of_the_hardest(everything.model, everything.sampler, 0) == 1


def test_a_run_without_a_cache_has_no_recall():
    run = train(ring(), sampler="bernoulli", trace=True)
    assert {line["recall"] for line in run.trace if line["event"] == "epoch"} == {None}
