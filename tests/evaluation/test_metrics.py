"""Metrics of ranks by hand, and bootstrap intervals against a slow twin."""

import json
import math

import numpy as np
import pytest
from scipy.stats import hmean

from nscaching.evaluation import RankingMetrics, RankingReport, Ranks, metrics, rank_triples
from nscaching.evaluation.metrics import (
    METRICS,
    STRONG,
    bootstrap_means,
    fact_values,
    few_facts_remark,
    find_leakage,
    interval,
    metric_intervals,
    paired_difference,
    within_noise,
)
from nscaching.models import Side
from tests.conftest import graph_of, random_graph, random_model
from tests.evaluation.helpers import tied_model

MEANS = ("mrr", "mr", "hits_at_1", "hits_at_3", "hits_at_10")


def report_of(graph, model, split="test", ties="mean"):
    triples = graph.split(split)
    ranks = rank_triples(model, graph, triples, ties=ties)
    return RankingReport.build(graph, triples, ranks, split=split, seconds=0.5), ranks


@pytest.fixture
def graph():
    """A graph with relations of several cardinality classes, and triples of each in test."""
    train = [(h, 0, h + 10) for h in range(8)]
    train += [(h, 1, t) for h in range(3) for t in range(10 + 3 * h, 13 + 3 * h)]
    train += [(h, 2, 19 - h % 2) for h in range(8)]
    train += [(h, 3, t) for h in range(4) for t in range(12, 16)]
    test = [(8, 0, 18), (9, 0, 19), (0, 1, 19), (9, 2, 18), (8, 2, 0), (5, 3, 12), (0, 3, 17)]
    return graph_of(train, valid=[(9, 1, 1)], test=test, entities=20)


def test_metrics_of_given_ranks():
    rank = np.array([1.0, 2.0, 3.5, 10.0, 11.0])
    among = np.array([20, 20, 15, 30, 25])
    metrics = RankingMetrics.of(rank, among)
    assert metrics.mrr == pytest.approx(1 / hmean(rank))
    assert metrics.mr == pytest.approx(27.5 / 5)
    assert (metrics.hits_at_1, metrics.hits_at_3, metrics.hits_at_10) == (0.2, 0.4, 0.8)
    chance = sum((n + 1) / 2 for n in among) / 5
    assert metrics.amri == pytest.approx(1 - (27.5 / 5 - 1) / (chance - 1))
    assert metrics.count == 5


def test_amri_is_one_for_perfect_ranks_zero_at_chance_and_minus_one_at_the_bottom():
    among = np.array([5, 9, 101])
    for rank, amri in ((np.ones(3), 1.0), ((among + 1) / 2, 0.0), (among.astype(float), -1.0)):
        assert RankingMetrics.of(rank, among).amri == pytest.approx(amri)


def test_amri_is_zero_where_there_is_nothing_to_rank_against():
    assert RankingMetrics.of(np.ones(2), np.ones(2, dtype=int)).amri == 0


def test_metrics_of_no_rank_are_not_numbers_and_none_in_json():
    metrics = RankingMetrics.of(np.zeros(0), np.zeros(0, dtype=int))
    assert metrics.count == 0
    assert all(math.isnan(getattr(metrics, name)) for name in (*MEANS, "amri"))
    values = metrics.as_dict()
    assert values.pop("count") == 0
    assert set(values.values()) == {None}


@pytest.mark.parametrize("ties", ["mean", "optimistic", "pessimistic"])
def test_overall_is_over_the_ranks_of_both_sides(graph, ties):
    report, ranks = report_of(graph, tied_model(20, 4), ties=ties)
    rank = [*ranks[Side.HEAD].rank, *ranks[Side.TAIL].rank]
    assert report.count == 2 * len(graph.test) == len(rank)
    assert report.mrr == pytest.approx(sum(1 / r for r in rank) / len(rank))
    assert report.mr == pytest.approx(sum(rank) / len(rank))
    for k, hits in ((1, report.hits_at_1), (3, report.hits_at_3), (10, report.hits_at_10)):
        assert hits == pytest.approx(sum(r <= k for r in rank) / len(rank))
    among = np.concatenate([ranks[side].among for side in Side])
    assert report.amri == pytest.approx(1 - (report.mr - 1) / ((among.mean() - 1) / 2))


def test_sides_are_not_mixed_up(graph):
    report, ranks = report_of(graph, random_model("simple", 20, 4))
    for side, part in ((Side.HEAD, report.head), (Side.TAIL, report.tail)):
        assert part == RankingMetrics.of(ranks[side].rank, ranks[side].among)
    assert report.head != report.tail


def test_weighted_means_of_the_parts_give_the_whole(graph):
    report, _ = report_of(graph, random_model("transe", 20, 4))
    breakdowns = (
        [report.head, report.tail],
        list(report.per_relation.values()),
        list(report.per_cardinality.values()),
    )
    for parts in breakdowns:
        assert sum(part.count for part in parts) == report.count
        for name in MEANS:
            total = sum(part.count * getattr(part, name) for part in parts)
            assert total / report.count == pytest.approx(getattr(report, name))


def test_each_relation_has_its_own_ranks(graph):
    report, ranks = report_of(graph, random_model("transe", 20, 4))
    for relation in range(4):
        mine = graph.test[:, 1] == relation
        rank = np.concatenate([ranks[side].rank[mine] for side in Side])
        part = report.per_relation[graph.relations[relation]]
        assert part.mr == pytest.approx(rank.mean())
        assert part.count == 2 * mine.sum()


def test_cardinality_classes_gather_their_relations(graph):
    assert graph.statistics.cardinality == ["1-1", "1-N", "N-1", "N-N"]
    report, _ = report_of(graph, random_model("transe", 20, 4))
    for relation, name in enumerate(graph.statistics.cardinality):
        assert report.per_cardinality[name] == report.per_relation[f"r{relation}"]


def test_relations_that_training_never_saw_are_a_class_of_their_own():
    graph = graph_of([(0, 0, 1)], test=[(1, 0, 2), (2, 1, 3)], entities=4)
    report, _ = report_of(graph, random_model("transe", 4, 2))
    assert list(report.per_cardinality) == ["1-1", "no training fact"]
    assert report.per_cardinality["no training fact"] == report.per_relation["r1"]


def test_relations_and_classes_without_a_triple_are_left_out(graph):
    report, _ = report_of(graph, random_model("transe", 20, 4), split="valid")
    assert list(report.per_relation) == ["r1"]
    assert list(report.per_cardinality) == ["1-N"]


def test_an_empty_split_gives_an_empty_report():
    graph = graph_of([(0, 0, 1)], entities=4)
    report, _ = report_of(graph, random_model("transe", 4, 1))
    assert report.count == 0
    assert math.isnan(report.mrr)
    assert report.per_relation == report.per_cardinality == {}
    assert report.as_dict()["mrr"] is None


def test_report_goes_to_json_and_back():
    graph = random_graph()
    report, _ = report_of(graph, random_model("rotate"))
    values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert values["split"] == "test"
    assert values["hits@10"] == report.hits_at_10
    assert values["head"]["mrr"] == report.head.mrr
    assert set(values["per_relation"]) == set(report.per_relation)
    assert report.overall() == {
        name: values[name] for name in ("mrr", "mr", "amri", "hits@1", "hits@3", "hits@10", "count")
    }


def test_better_ranks_give_better_metrics(graph):
    perfect = {side: Ranks(np.ones(7), np.full(7, 20), np.ones(7)) for side in Side}
    report = RankingReport.build(graph, graph.test, perfect, split="test", seconds=0.0)
    assert (report.mrr, report.mr, report.amri, report.hits_at_1) == (1, 1, 1, 1)


def slow_means(values, resamples, seed):
    """Draw the same facts one by one and average what they have."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(resamples):
        drawn = [values[place] for place in rng.integers(0, len(values), (1, len(values)))[0]]
        found.append([sum(column) / len(drawn) for column in zip(*drawn, strict=True)])
    return np.array(found)


def test_means_equal_those_of_a_loop(monkeypatch):
    # One resample at a time, as the loop draws.
    monkeypatch.setattr("nscaching.evaluation.metrics._BLOCK", 1)
    values = np.random.default_rng(1).random((23, 3))
    assert bootstrap_means(values, resamples=40, seed=5) == pytest.approx(slow_means(values, 40, 5))


def test_blocks_draw_every_fact_equally_often():
    values = np.eye(50)
    shares = bootstrap_means(values, resamples=4000, seed=0)
    assert shares.sum(axis=1) == pytest.approx(1.0)
    assert shares.mean(axis=0) == pytest.approx(1 / 50, abs=5 * 0.14 / 50 / np.sqrt(4000) * 50)
    assert shares.std(axis=0).mean() == pytest.approx(np.sqrt(49) / 50 / np.sqrt(50), rel=0.02)


def test_values_of_facts_average_to_the_metrics():
    ranks = np.array([[1.0, 4.0, 12.0], [2.0, 1.0, 3.0]])
    values = dict(zip(METRICS, fact_values(ranks).mean(axis=0), strict=True))
    assert values["mrr"] == pytest.approx((1 / ranks).mean())
    assert values["hits@1"] == pytest.approx(2 / 6)
    assert values["hits@3"] == pytest.approx(4 / 6)
    assert values["hits@10"] == pytest.approx(5 / 6)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    held = 0
    for trial in range(300):
        values = rng.exponential(size=(200, 1))
        low, high = interval(bootstrap_means(values, resamples=400, seed=trial)[:, 0])
        held += low <= 1.0 <= high
    assert 0.89 < held / 300 < 0.98  # 0.95, a little less for a skewed mean of 200


def test_a_pair_is_told_apart_where_two_intervals_overlap():
    rng = np.random.default_rng(0)
    hard = rng.random(400)
    better = hard + 0.02 + 0.01 * rng.standard_normal(400)
    gap, ends = paired_difference(better, hard)
    assert gap == pytest.approx(0.02, abs=0.005)
    assert not within_noise(ends)
    one, other = (interval(bootstrap_means(each[:, None])[:, 0]) for each in (better, hard))
    assert one[0] < other[1]  # the unpaired intervals overlap
    swapped, turned = paired_difference(hard, better)
    assert swapped == -gap
    assert turned == pytest.approx((-ends[1], -ends[0]))


def test_noise_is_called_noise():
    rng = np.random.default_rng(0)
    same = rng.random(300)
    _, ends = paired_difference(same + 0.1 * rng.standard_normal(300), same)
    assert within_noise(ends)
    assert within_noise((0.01, 0.02), by_seed=[0.03, -0.001])
    assert not within_noise((0.01, 0.02), by_seed=[0.03, 0.001])


def test_metrics_of_few_facts_are_remarked_on():
    assert few_facts_remark(0) is None
    assert few_facts_remark(1, "valid").startswith("These metrics rest on 1 fact of valid: ")
    assert "on 29 facts of test" in few_facts_remark(29)
    assert few_facts_remark(30) is None


def test_nothing_has_no_interval():
    assert metric_intervals(np.empty((0, 4))) == {}


def slow_leaks(graph, split="test"):
    """Return the leaking facts, from the definition."""
    train = {tuple(fact) for fact in graph.train.tolist()}
    by_relation = {r: {(h, t) for h, s, t in train if s == r} for r in range(graph.num_relations)}

    def strong(r, other, turned):
        if r == other and not turned:
            return False
        mine = by_relation[r]
        theirs = {(t, h) for h, t in by_relation[other]} if turned else by_relation[other]
        largest = max(len(mine), len(theirs))
        return bool(mine & theirs) and len(mine & theirs) >= STRONG * largest

    leaks = []
    for h, r, t in graph.split(split).tolist():
        for other in by_relation:
            if strong(r, other, False) and (h, other, t) in train:
                leaks.append((h, r, t))
                break
            if strong(r, other, True) and (t, other, h) in train:
                leaks.append((h, r, t))
                break
    return leaks


@pytest.mark.parametrize("seed", range(4))
def test_counts_equal_those_of_loops(seed):
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, 12, (60, 2))
    rows = [(h, 0, t) for h, t in pairs.tolist()]
    rows += [(t, 1, h) for h, t in pairs[: 45 - 5 * seed].tolist()]
    rows += [(h, 2, t) for h, t in pairs[10:50].tolist()]
    rows += [(h, 3, t) for h, t in rng.integers(0, 12, (30, 2)).tolist()]
    rows = list(dict.fromkeys(rows))
    order = rng.permutation(len(rows))
    split = [rows[i] for i in order[:20]], [rows[i] for i in order[20:]]
    graph = graph_of(split[1], test=split[0], entities=12)
    found = find_leakage(graph)
    assert found.leaked == len(slow_leaks(graph))
    assert found.facts == 20


def test_inverses_are_found_and_said():
    train = [(h, 0, h + 10) for h in range(10)] + [(h + 10, 1, h) for h in range(9)]
    graph = graph_of(train, test=[(9 + 10, 1, 9), (3, 0, 15)], entities=20)
    found = find_leakage(graph)
    assert (found.leaked, found.share) == (1, 0.5)
    assert {(*sorted(pair[:2]), pair[2]) for pair in found.pairs} == {
        (*sorted(graph.relations[:2]), "inverse")
    }
    assert "50% of the test facts" in found.remark
    assert found.as_dict()["leaked"] == 1


def test_of_a_large_graph_some_pairs_of_entities_tell_which_relations_overlap(monkeypatch):
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 300, (3000, 2)), axis=0).tolist()
    rows = [(h, 0, t) for h, t in pairs] + [(t, 1, h) for h, t in pairs[:2400]]
    rows += [(h, 2, t) for h, t in pairs[:300]]
    order = rng.permutation(len(rows))
    split = [rows[i] for i in order[:300]], [rows[i] for i in order[300:]]
    graph = graph_of(split[1], test=split[0], entities=300)
    whole = find_leakage(graph)
    monkeypatch.setattr(metrics, "_LOOKED_AT", 600)
    assert 400 < len(metrics._whole_pairs(graph.train, 300)) < 1000
    assert find_leakage(graph) == whole
    assert whole.leaked > 100


def test_a_symmetric_relation_is_its_own_inverse():
    train = [(h, 0, h + 1) for h in range(0, 20, 2)] + [(h + 1, 0, h) for h in range(0, 18, 2)]
    graph = graph_of(train, test=[(19, 0, 18)], entities=20)
    assert "is symmetric" in find_leakage(graph).remark


def test_a_graph_without_overlap_says_nothing():
    graph = graph_of([(h, 0, h + 1) for h in range(9)], test=[(0, 0, 5)], entities=10)
    assert find_leakage(graph).remark is None
    assert find_leakage(graph_of([(0, 0, 1)], entities=2)).remark is None
    assert find_leakage(random_graph()).leaked == len(slow_leaks(random_graph()))


def test_loops_are_remarked_on_where_they_stand_above_the_answers():
    graph = graph_of([(0, 0, 1), (1, 0, 2), (2, 0, 3)], test=[(3, 0, 0), (1, 0, 3)], entities=4)

    def report(rank, loop_free):
        ranks = Ranks(np.full(2, rank), np.full(2, 4), np.full(2, loop_free))
        both = dict.fromkeys(Side, ranks)
        return RankingReport.build(graph, graph.test, both, split="test", seconds=0)

    assert report(2.0, 2.0).loop_remark is None
    remark = report(2.0, 1.0).loop_remark
    assert "MRR is 1.0000 and Hits@1 1.0000" in remark
    assert report(2.0, 1.0).as_dict()["without_loops"]["mrr"] == 1
