"""Probabilities: features, the fit, what is kept of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from nscaching import KnowledgeGraph, UserError
from nscaching.evaluation import questions
from nscaching.evaluation.calibration import (
    TAKEN_OUT,
    Calibration,
    answer_logits,
    expected_calibration_error,
    fit_calibration,
    reliability_bins,
)
from nscaching.evaluation.evidence import Evidence
from nscaching.evaluation.negatives import claims_of
from nscaching.evaluation.regression import _newton, expit, fit_curve
from nscaching.models import SCORING, Side

from ..conftest import random_graph, random_model


def test_shared_weights_and_those_of_each_relation_are_found():
    random = np.random.default_rng(0)
    n, relations = 40_000, random.integers(3, size=40_000)
    features = random.normal(size=(n, 3)) * [2.0, 1.0, 5.0] + [1.0, 0.0, -3.0]
    intercepts, slopes = np.array([-1.0, 0.0, 2.0]), np.array([1.5, 0.5, 1.0])
    logits = intercepts[relations] + slopes[relations] * features[:, 0] - 0.4 * features[:, 2]
    true = random.random(n) < expit(logits)
    curve = fit_curve(features, relations, true, np.ones(n), 3, own=(0,))
    made = curve.logits(features, relations)
    assert np.abs(made - logits).mean() < 0.15
    for relation in range(3):
        assert curve.of_relation(relation)[0] == pytest.approx(slopes[relation], abs=0.1)


def test_the_fit_is_the_minimum_of_its_loss():
    """No step in any direction makes the penalised loss smaller."""
    random = np.random.default_rng(1)
    n, relations = 300, np.sort(random.integers(4, size=300))
    shared = np.column_stack([np.ones(n), random.normal(size=(n, 2))])
    own = shared[:, :2]
    true = (random.random(n) < expit(shared[:, 1] + relations - 2.0)).astype(float)
    weights = random.choice([1.0, 1000.0], size=n)
    expected = np.array([0.0, 1.0, -1.0])

    def loss(beta, added):
        logits = shared @ beta + (own * added[relations]).sum(axis=1)
        fit = weights @ (np.logaddexp(0, logits) - true * logits)
        return fit + 0.5 * ((beta - expected)[1:] ** 2).sum() + 5.0 * (added**2).sum()

    beta, added = _newton(shared, own, relations, true, weights, expected, 4)
    least = loss(beta, added)
    for _ in range(200):
        step = 0.01 * random.normal(size=3), 0.01 * random.normal(size=(4, 2))
        assert loss(beta + step[0], added + step[1]) > least - 1e-6


def test_a_number_of_the_score_that_would_count_against_a_fact_is_left_out():
    """Its weight is none, and the intercept is that of a fit without it."""
    random = np.random.default_rng(3)
    n, relations = 20_000, np.zeros(20_000, dtype=int)
    features = random.normal(size=(n, 3)) + np.array([0.0, 6.0, 0.0])
    true = random.random(n) < expit(2 * features[:, 0] - 1.5 * (features[:, 1] - 6))
    curve = fit_curve(features, relations, true, np.ones(n), 1, own=(0,))
    assert curve.weights[1] == 0
    chances = expit(curve.logits(features, relations))
    assert chances.mean() == pytest.approx(true.mean(), abs=0.02)


def test_a_relation_with_few_facts_is_like_the_whole():
    random = np.random.default_rng(2)
    relations = np.array([0] * 5000 + [1] * 3)
    features = random.normal(size=(len(relations), 1))
    true = random.random(len(relations)) < expit(2 * features[:, 0])
    true[-3:] = True
    curve = fit_curve(
        np.hstack([features, features * 0]), relations, true, np.ones(5003), 2, own=(0,)
    )
    apart = curve.of_relation(0)[0] - curve.of_relation(1)[0]
    assert abs(apart) < 0.3
    assert abs(curve.intercepts[0] - curve.intercepts[1]) < 0.3


def test_probabilities_of_answers_are_those_among_what_is_unknown():
    """As many facts are missing as valid holds, and the fit takes them for negatives."""
    random = np.random.default_rng(4)
    n, relations = 40_000, np.zeros(40_000, dtype=int)
    features = random.random(size=(n, 3)) * [4.0, 0.0, 0.0]
    true = random.random(n) < 2 * expit(features[:, 0] - 4.2)
    valid = true & (random.random(n) < 0.5)
    curve = fit_curve(features, relations, valid, np.ones(n), 1, own=(0,))
    fitted = curve.logits(features, relations)[~valid]
    missing = true[~valid]
    errors = [
        expected_calibration_error(reliability_bins(expit(logits), missing))
        for logits in (fitted, answer_logits(fitted))
    ]
    assert missing.mean() == pytest.approx(valid.mean() / (1 - valid.mean()), abs=0.01)
    assert errors[0] > 0.03
    assert errors[1] < 0.015


def test_probabilities_of_answers_are_the_odds_of_the_fit_and_never_above_one():
    odds = np.array([1e-6, 1e-3, 0.1, 0.3, 0.5, 1.0, 2.0])
    chances = expit(answer_logits(np.log(odds)))
    assert chances == pytest.approx([1e-6, 1e-3, 0.1, 0.3, 0.49, 0.91, 0.99], rel=0.02)
    # The odds are those of valid to the negatives without the missing facts that are taken out.
    assert chances / (1 - chances) == pytest.approx(odds / (1 - TAKEN_OUT * chances))
    every = answer_logits(np.linspace(-40, 40, 4001))
    assert (np.diff(every) > 0).all()  # the order stays
    assert np.isfinite(answer_logits(np.array([-1e9, 1e9]))).all()


@pytest.mark.parametrize("scoring", ["transe", "complex"])
def test_features_of_the_score_are_those_of_its_question(scoring):
    graph = random_graph()
    model = random_model(scoring, graph.num_entities, graph.num_relations, 6)
    evidence = Evidence(model, graph, temperature=0.7)
    triples = graph.test.astype(np.int64)
    found = evidence.score_features(triples, Side.TAIL)
    for row, (h, r, t) in enumerate(triples.tolist()):
        scores = model.score_all(Side.TAIL, torch.tensor([h]), torch.tensor([r]))[0].double()
        known = graph.train[(graph.train[:, 0] == h) & (graph.train[:, 1] == r), 2]
        kept = np.setdiff1d(np.arange(graph.num_entities), known)
        softmax = 0.7 * scores[t] - torch.logsumexp(0.7 * scores[kept], 0)
        assert found[row, 0] == pytest.approx(float(softmax), abs=1e-3)
        deviations = (scores[t] - scores.mean()) / scores.std()
        assert found[row, 1] == pytest.approx(float(deviations), abs=1e-3)


def test_claims_have_negatives_of_both_kinds_and_no_fact_among_them():
    graph = random_graph()
    triples, true, any_type = claims_of(graph, graph.valid.astype(np.int64), seed=3)
    facts = {tuple(row) for s in ("train", "valid", "test") for row in graph.split(s).tolist()}
    assert true.sum() == len(graph.valid)
    assert not {tuple(row) for row in triples[~true].tolist()} & facts
    heads = {tuple(row) for row in graph.train[:, [1, 0]].tolist()}
    tails = {tuple(row) for row in graph.train[:, [1, 2]].tolist()}
    given = {tuple(row) for row in graph.valid.tolist()}
    for h, r, t in triples[~true & ~any_type].tolist():
        replaced_tail = any((h, r) == (a, b) for a, b, _ in given)
        assert (r, t) in tails if replaced_tail else (r, h) in heads
    again = claims_of(graph, graph.valid.astype(np.int64), seed=3)[0]
    assert np.array_equal(again, triples)


@pytest.mark.parametrize("scoring", SCORING)
def test_every_scoring_function_is_calibrated_and_the_same_twice(scoring):
    graph = random_graph()
    model = random_model(scoring, graph.num_entities, graph.num_relations, 6)
    first, second = fit_calibration(model, graph), fit_calibration(model, graph)
    assert first.as_dict() == second.as_dict()
    plain = json.loads(json.dumps(first.as_dict()))
    read = Calibration.from_dict(plain, model, graph.num_relations)
    assert read.as_dict() == first.as_dict()


def test_what_is_kept_is_of_one_model():
    graph = random_graph()
    model, other = (random_model("distmult", 25, 4, 6, seed=seed) for seed in (0, 1))
    kept = fit_calibration(model, graph).as_dict()
    with pytest.raises(ValueError, match="another model"):
        Calibration.from_dict(kept, other, 4)
    for damage in ({"claims": {}}, {"answers": []}, {"temperature": "warm"}, {"format": 9}):
        with pytest.raises(ValueError, match=r"lacks|another|unpack|convert"):
            Calibration.from_dict({**kept, **damage}, model, 4)


def test_without_valid_there_is_none():
    graph = KnowledgeGraph(["a", "b"], ["r"], [[0, 0, 1]])
    with pytest.raises(UserError, match="no valid triples"):
        fit_calibration(random_model("distmult", 2, 1, 4), graph)


def test_probabilities_from_few_facts_are_remarked_on():
    graph = random_graph()
    few = KnowledgeGraph(graph.entities, graph.relations, graph.train, graph.valid[:3], graph.test)
    model = random_model("distmult", graph.num_entities, graph.num_relations, 6)
    kept = fit_calibration(model, few).as_dict()
    read = Calibration.from_dict(kept, model, graph.num_relations)
    told = "The probabilities rest on 3 facts of valid: take them as an order only."
    assert (read.facts, read.remark) == (3, told)
    assert replace(read, facts=30).remark is None
    del kept["facts"]  # of an earlier version: it is fitted again
    with pytest.raises(ValueError, match="lacks"):
        Calibration.from_dict(kept, model, graph.num_relations)


def test_questions_are_drawn_more_often_where_answers_are_many_and_weigh_less(monkeypatch):
    """Their weights stand for all plausible questions, and so do those of hubs for all hubs."""
    random = np.random.default_rng(0)
    hub = np.column_stack([np.zeros(60, int), np.zeros(60, int), 1 + random.permutation(199)[:60]])
    heads = 1 + random.integers(199, size=600)
    others = np.column_stack([heads, random.integers(2, size=600), random.integers(200, size=600)])
    triples = np.unique(np.concatenate([hub, others]), axis=0)
    names = [f"e{i}" for i in range(200)], ["r", "s"]
    graph = KnowledgeGraph(*names, triples, triples[:40])
    evidence = Evidence(random_model("distmult", 200, 2, 4), graph, temperature=1.0)
    monkeypatch.setattr(questions, "_MOST_QUESTIONS", 100)
    monkeypatch.setattr(questions, "_FEWEST_QUESTIONS", 100)
    monkeypatch.setattr(questions, "_ODD_QUESTIONS", 0.0)
    monkeypatch.setattr(questions, "sample_size", lambda _: 200)
    plausible = sum(evidence.positions.column(Side.HEAD, r).plausible.sum() for r in range(2))
    sums, hubs = [], []
    for seed in range(200):
        drawn = questions.question_sample(evidence, Side.TAIL, np.random.default_rng(seed))
        anchors, relations, weights = drawn
        sums.append(weights.sum())
        hubs.append(((anchors == 0) & (relations == 0)).sum())
    assert np.mean(sums) == pytest.approx(plausible, rel=0.02)
    assert np.mean(hubs) > 3  # evenly it would be drawn less than once
    # Of many entities only some are looked at, and those that were seen there.
    monkeypatch.setattr(questions, "_MOST_ANCHORS", 10)
    monkeypatch.setattr(questions, "_DRAWN_ANCHORS", 60)
    sums = [
        questions.question_sample(evidence, Side.TAIL, np.random.default_rng(seed))[2].sum()
        for seed in range(200)
    ]
    assert np.mean(sums) == pytest.approx(plausible, rel=0.02)
    monkeypatch.setattr(questions, "_MOST_ANCHORS", 1 << 20)
    # Of many relations only some are looked at; their questions stand for those of the others.
    monkeypatch.setattr(questions, "_MOST_PLACES", 0)
    share = np.array([0.4, 0.6])
    monkeypatch.setattr(
        questions,
        "_some_relations",
        lambda _, random: (kept := np.array([random.random() < 0.6], dtype=int), share[kept]),
    )
    sums = [
        questions.question_sample(evidence, Side.TAIL, np.random.default_rng(seed))[2].sum()
        for seed in range(400)
    ]
    assert np.mean(sums) == pytest.approx(plausible, rel=0.03)


def test_many_relations_are_looked_at_in_part():
    random = np.random.default_rng(0)
    rows = np.column_stack([random.integers(50, size=900), np.zeros(900, int), np.arange(900) % 50])
    rows[300:, 1] = 1 + random.integers(199, size=600)
    graph = KnowledgeGraph([f"e{i}" for i in range(50)], [f"r{i}" for i in range(200)], rows)
    every = questions._some_relations(graph, np.random.default_rng(0))
    assert every[0].tolist() == list(range(200))
    assert (every[1] == 1).all()
    graph = KnowledgeGraph([f"e{i}" for i in range(10**6)], graph.relations, rows)
    drawn = [questions._some_relations(graph, np.random.default_rng(seed)) for seed in range(300)]
    assert np.mean([len(kept) for kept, _ in drawn]) < 110
    assert all(0 in kept for kept, _ in drawn)  # it has many facts
    assert np.mean([(1 / share).sum() for _, share in drawn]) == pytest.approx(200, rel=0.1)


def test_the_error_of_probabilities():
    chances = np.array([0.05, 0.05, 0.95, 0.95])
    bins = reliability_bins(chances, np.array([False, True, True, True]), bins=10)
    assert [part.count for part in bins] == [2, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert bins[0].true == 0.5
    assert expected_calibration_error(bins) == pytest.approx((2 * 0.45 + 2 * 0.05) / 4)
