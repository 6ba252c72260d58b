"""Predictions against brute force: unknown, the best of their question, varied."""

import numpy as np
import pytest

from nscaching.graph.statistics import MANY
from nscaching.models import Side
from nscaching.report.predictions import unknown_triples
from nscaching.runs.run import Run
from nscaching.training import TrainConfig

from ..conftest import graph_of, random_graph, random_model


def run_of(graph):
    model = random_model("distmult", graph.num_entities, graph.num_relations)
    return Run(TrainConfig(scoring="distmult", dim=5), graph, model)


@pytest.fixture(scope="module")
def run():
    return run_of(random_graph(entities=25, relations=4, train=200))


def test_none_is_in_the_graph_and_scores_are_those_of_the_model(run):
    guesses = unknown_triples(run)
    assert len(guesses) == 10
    triples = [(g.prediction.head, g.prediction.relation, g.prediction.tail) for g in guesses]
    assert [run.split_of(*triple) for triple in triples] == [None] * 10
    scores = [guess.prediction.score for guess in guesses]
    assert scores == pytest.approx(run.score(triples).tolist(), rel=1e-5)
    assert scores == sorted(scores, reverse=True)
    assert all(head != tail for head, _, tail in triples)
    assert len({(relation, frozenset((head, tail))) for head, relation, tail in triples}) == 10


def test_each_is_the_best_new_answer_to_its_question(run):
    for guess in unknown_triples(run):
        triple = guess.prediction
        if guess.side is Side.TAIL:
            best = run.predict_tails(triple.head, triple.relation, k=2)
            known = len({t for h, r, t in run.graph.train.tolist() if (h, r) == ids(run, triple)})
        else:
            best = run.predict_heads(triple.relation, triple.tail, k=2)
            known = len(
                {h for h, r, t in run.graph.train.tolist() if (t, r) == ids(run, triple, 1)}
            )
        new = next(each for each in best if each.head != each.tail)
        assert (new.head, new.tail) == (triple.head, triple.tail)
        assert guess.answers == known


def ids(run, triple, tail=0):
    anchor = triple.tail if tail else triple.head
    return run.graph.entity_id(anchor), run.graph.relation_id(triple.relation)


def test_of_a_relation_there_are_two_while_others_have_some_left(run):
    names = [guess.prediction.relation for guess in unknown_triples(run, shown=8)]
    assert max(map(names.count, names)) == 2
    assert len(set(names)) == 4


def test_questions_that_have_one_answer_are_not_asked():
    # r0 leads to one tail from many heads: only its heads are asked for; r1 is one to one.
    graph = graph_of([(h, 0, 9) for h in range(6)] + [(h, 1, h + 1) for h in range(4)])
    usual = graph.statistics
    assert (usual.tails_per_head < MANY).all()
    guesses = unknown_triples(run_of(graph))
    assert {(g.prediction.relation, g.side) for g in guesses} == {("r0", Side.HEAD)}
    alone = graph_of([(h, 0, h + 1) for h in range(4)])
    assert unknown_triples(run_of(alone)) == []


def test_a_question_with_every_answer_known_gives_none():
    full = [(0, 0, t) for t in range(1, 5)]
    guesses = unknown_triples(run_of(graph_of(full)))
    assert all(guess.side is not Side.TAIL for guess in guesses)


def test_few_scores_at_a_time_change_nothing(run, monkeypatch):
    whole = unknown_triples(run)
    monkeypatch.setattr("nscaching.report.predictions._SCORES_AT_ONCE", 60)
    parts = unknown_triples(run)
    assert [g.prediction.as_dict() | {"score": 0} for g in parts] == [
        g.prediction.as_dict() | {"score": 0} for g in whole
    ]
    assert np.allclose([g.prediction.score for g in parts], [g.prediction.score for g in whole])
