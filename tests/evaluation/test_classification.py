"""Classification of a split: labels, thresholds, reports."""

import json
import math
import os

import numpy as np
import pytest

from nscaching import KnowledgeGraph, load_graph
from nscaching.errors import UserError
from nscaching.evaluation import (
    Drawing,
    classification,
    classification_report,
    classify_triples,
    fit_thresholds,
    labelled_triples,
    learn_thresholds,
    score_triples,
)
from nscaching.graph import find_dataset
from nscaching.models import SCORING
from tests.conftest import graph_of, random_graph, random_model
from tests.models.twins import TwinModel

GRAPH = random_graph(held_out=40)
USUAL = Drawing()


def report_of(graph, model, split="test", drawing=USUAL):
    thresholds = learn_thresholds(model, graph, drawing)
    return classification_report(model, graph, thresholds, split, drawing)


def slow_counts(graph, model, split):
    """Count the right answers by relation, every threshold tried; None where two are as good."""
    twin = TwinModel(model)
    valid, asked = labelled_triples(graph, "valid"), labelled_triples(graph, split)

    def scored(given):
        scores = [twin.score(*triple) for triple in given.triples.tolist()]
        return list(zip(given.triples[:, 1].tolist(), scores, given.true.tolist(), strict=True))

    counts = {}
    for r in set(asked.triples[:, 1].tolist()):
        mine = sorted((s, y) for relation, s, y in scored(valid) if relation == r)
        cuts = {}
        for i in range(len(mine) + 1):
            right = sum(not y for _, y in mine[:i]) + sum(y for _, y in mine[i:])
            cuts.setdefault(right, []).append(i)
        (cut, *others) = cuts[max(cuts)]
        if others or cut in (0, len(mine)):
            counts[r] = None
            continue
        middle = (mine[cut - 1][0] + mine[cut][0]) / 2
        right = [(s >= middle) == y for relation, s, y in scored(asked) if relation == r]
        counts[r] = sum(right), len(right)
    return counts


@pytest.mark.parametrize("split", ["valid", "test"])
def test_the_report_counts_what_a_slow_twin_counts(split):
    compared = 0
    for seed in range(6):
        model = random_model("transe", seed=seed)
        report = report_of(GRAPH, model, split)
        for r, counted in slow_counts(GRAPH, model, split).items():
            part = report.per_relation[GRAPH.relations[r]]
            if counted is not None:
                compared += 1
                assert (round(part.accuracy * part.count), part.count) == counted
    assert compared > 8


def test_the_parts_give_the_whole():
    report = report_of(GRAPH, random_model("simple"))
    parts = report.per_relation.values()
    assert sum(part.count for part in parts) == report.count == 2 * len(GRAPH.test)
    hits = sum(part.accuracy * part.count for part in parts)
    assert hits / report.count == pytest.approx(report.accuracy)
    assert report.facts == len(GRAPH.test)


def test_a_model_that_knows_the_facts_is_always_right():
    graph = random_graph(entities=12, relations=1, train=20, held_out=15)
    model = random_model("distmult", 12, 1)
    facts = {tuple(x) for s in ("train", "valid", "test") for x in graph.split(s).tolist()}

    class Oracle:
        device = model.device

        def score(self, *columns):
            rows = zip(*(column.tolist() for column in columns), strict=True)
            return columns[0].new_tensor([row in facts for row in rows]).float()

    report = report_of(graph, Oracle())
    assert report.accuracy == 1
    assert report.threshold == 0.5


def test_relations_unseen_in_valid_take_the_overall_threshold():
    train = [(h, r, (h + r) % 9) for h in range(9) for r in (0, 1)]
    graph = graph_of(train, valid=[(0, 0, 2), (1, 0, 4)], test=[(3, 0, 7), (2, 1, 5)], entities=9)
    report = report_of(graph, random_model("transe", 9, 2))
    assert report.per_relation["r0"].own_threshold
    assert not report.per_relation["r1"].own_threshold
    assert report.per_relation["r1"].threshold == report.threshold
    assert "1 of 2 relations" in report.notes[-1]


def labelled_graph():
    labelled = {
        "valid": [[0, 0, 2, 1], [0, 0, 3, -1], [1, 0, 3, 1], [1, 0, 4, -1]],
        "test": [[2, 0, 4, 1], [2, 0, 5, -1], [3, 0, 0, -1]],
    }
    names = [f"e{i}" for i in range(6)], ["r"]
    return KnowledgeGraph(*names, [[4, 0, 1]], [[0, 0, 2]], [[2, 0, 4]], labelled=labelled)


def test_labelled_negatives_of_the_data_set_are_used():
    graph = labelled_graph()
    given = labelled_triples(graph, "test", Drawing(7))
    assert given.triples.tolist() == [[2, 0, 4], [2, 0, 5], [3, 0, 0]]
    assert given.true.tolist() == [True, False, False]
    report = report_of(graph, random_model("transe", 6, 1))
    assert (report.negatives, report.count, report.facts) == ("data set", 3, 1)
    assert labelled_triples(graph, "train").seeded  # not labelled: drawn


def test_a_graph_without_valid_is_refused():
    graph = graph_of([(0, 0, 1)], test=[(1, 0, 2)], entities=4)
    with pytest.raises(UserError, match="has no valid triples"):
        learn_thresholds(random_model("transe", 4, 1), graph)


def test_an_empty_split_gives_an_empty_report():
    graph = graph_of([(0, 0, 1), (2, 0, 3)], valid=[(1, 0, 2)], entities=4)
    report = report_of(graph, random_model("transe", 4, 1))
    assert (report.count, report.per_relation) == (0, {})
    assert math.isnan(report.accuracy)
    assert report.as_dict()["accuracy"] is None


def test_the_report_goes_to_json_and_back():
    report = report_of(GRAPH, random_model("rotate"), drawing=Drawing(5, "either"))
    values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert (values["seed"], values["replaced"], values["negatives"]) == (5, "either", "seeded")
    assert values["accuracy"] == report.accuracy
    for name, part in report.per_relation.items():
        assert values["per_relation"][name] == part.as_dict()


def test_notes_say_where_negatives_are_not_as_they_should():
    graph = graph_of([(0, 0, 9), (1, 0, 9)], valid=[(2, 0, 9)], test=[(3, 0, 9)], entities=10)
    (note,) = report_of(graph, random_model("transe", 10, 1)).notes
    assert note.startswith("1 negative of test has an entity")
    everything = [(h, 0, t) for h in range(2) for t in range(2)]
    graph = graph_of(everything[:2], valid=everything[2:3], test=everything[3:], entities=2)
    report = report_of(graph, random_model("transe", 2, 1))
    assert (report.count, report.facts) == (1, 1)
    assert "1 fact of test has no negative" in report.notes[0]


@pytest.mark.parametrize("name", list(SCORING))
def test_blocks_give_the_scores_of_the_whole(name, monkeypatch):
    model = random_model(name)
    whole = score_triples(model, GRAPH.test)
    monkeypatch.setattr(classification, "_BLOCK", 7)
    assert np.allclose(score_triples(model, GRAPH.test), whole, rtol=1e-6)
    thresholds = learn_thresholds(model, GRAPH)
    labels, margins = classify_triples(model, thresholds, GRAPH.test)
    assert (labels == (margins >= 0)).all()
    assert labels.shape == margins.shape == (len(GRAPH.test),)


@pytest.mark.data
def test_fb13_is_classified_with_its_own_negatives():
    if not os.environ.get("NSCACHING_DATA") or find_dataset("FB13") is None:
        pytest.skip("FB13 is not in NSCACHING_DATA")
    graph = load_graph("FB13")
    model = random_model("transe", graph.num_entities, graph.num_relations)
    report = report_of(graph, model)
    assert (report.negatives, report.count, report.facts) == ("data set", 47_466, 23_733)
    assert report.notes == ()
    assert 0.4 < report.accuracy < 0.7  # untrained
    # Its negatives are what ours are: another tail that the relation has.
    for split in ("valid", "test"):
        rows = graph.labelled[split]
        facts, negatives = rows[0::2], rows[1::2]
        assert (facts[:, :2] == negatives[:, :2]).all()
        assert (facts[:, 3] == 1).all()
        assert (negatives[:, 3] == -1).all()
        known = np.concatenate([graph.train, graph.valid, graph.test])
        size = graph.num_entities
        assert np.isin(
            negatives[:, 1] * size + negatives[:, 2], known[:, 1] * size + known[:, 2]
        ).all()


def right(scores, true, threshold):
    return sum((s >= threshold) == y for s, y in zip(scores, true, strict=True))


def best(scores, true):
    """Try every score as a threshold, and one above them all."""
    return max(right(scores, true, t) for t in [*scores, max(scores) + 1])


def random_case(seed, ties):
    rng = np.random.default_rng(seed)
    count, relations = int(rng.integers(1, 90)), int(rng.integers(1, 8))
    scores = rng.normal(size=count)
    if ties:
        scores = np.round(2 * scores) / 2
    relation = rng.integers(relations, size=count)
    true = rng.random(count) < 1 / (1 + np.exp(-scores * rng.choice([0.5, 3])))
    return scores.astype(np.float32), relation, true, relations + 2


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_no_threshold_is_better(seed, ties):
    scores, relation, true, relations = random_case(seed, ties)
    found = fit_thresholds(scores, relation, true, relations)
    assert right(scores, true, found.overall) == best(scores, true)
    for r in range(relations):
        mine = relation == r
        assert found.own[r] == mine.any()
        if mine.any():
            value = found.values[r]
            assert right(scores[mine], true[mine], value) == best(scores[mine], true[mine])
        else:
            assert found.values[r] == found.overall
    assert np.isfinite(found.values).all()


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_the_triples_does_not_matter(seed):
    scores, relation, true, relations = random_case(seed, ties=True)
    found = fit_thresholds(scores, relation, true, relations)
    mixed = np.random.default_rng(seed).permutation(len(scores))
    again = fit_thresholds(scores[mixed], relation[mixed], true[mixed], relations)
    assert np.array_equal(found.values, again.values)


def test_the_threshold_stands_between_the_two_scores():
    scores, true = np.array([-3.0, -1.0, 2.0, 5.0]), np.array([False, False, True, True])
    found = fit_thresholds(scores, np.zeros(4, dtype=int), true, 1)
    assert found.values.tolist() == [0.5]
    assert found.margins(scores, np.zeros(4, dtype=int)).tolist() == [-3.5, -1.5, 1.5, 4.5]


def test_equal_scores_are_not_told_apart():
    scores, true = np.array([1.0, 1.0, 1.0]), np.array([True, True, False])
    found = fit_thresholds(scores, np.zeros(3, dtype=int), true, 1)
    assert (found.margins(scores, np.zeros(3, dtype=int)) >= 0).all()


def test_where_valid_does_not_decide_the_overall_threshold_does():
    scores = np.array([0.0, 1.0, 3.0, 10.0, 4.0, 7.0, 0.5, 1.5])
    true = np.array([False, False, True, True, True, False, True, False])
    relation = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    found = fit_thresholds(scores, relation, true, 3)
    assert found.overall == 2.25
    # Relations 1 and 2 have their fact below their negative: all and none are equally right.
    assert found.values.tolist() == [2.0, 2.25, 2.25]


def test_scores_that_are_not_numbers_are_the_lowest():
    scores = np.array([np.nan, -np.inf, 3.0, np.inf], dtype=np.float32)
    true = np.array([False, False, True, True])
    found = fit_thresholds(scores, np.zeros(4, dtype=int), true, 1)
    assert np.isfinite(found.values).all()
    assert (found.margins(scores, np.zeros(4, dtype=int)) >= 0).tolist() == true.tolist()
