"""The measure on valid decides the best epoch and early stopping, whichever it is."""

import numpy as np
import pytest

import nscaching as ns
from nscaching import KnowledgeGraph
from nscaching.evaluation import RankingReport
from nscaching.evaluation.metrics import SELECTABLE
from nscaching.training import RunFolder, TrainConfig
from nscaching.training.validation import Validation, drawn_facts

from ..conftest import random_model
from .helpers import go_on, kept_bits, ring, train, untimed_metrics

LEARNT = {"scoring": "transe", "lr": 0.05, "dim": 16, "epochs": 12, "valid_every": 1, "patience": 0}


def labelled_ring():
    """Make a ring whose valid triples come with negatives of their own."""
    graph = ring()
    wrong = graph.valid.copy()
    wrong[:, 2] = (wrong[:, 2] + 7) % graph.num_entities
    rows = np.concatenate([graph.valid, wrong])
    labels = np.repeat([1, -1], len(wrong))[:, None]
    labelled = {"valid": np.concatenate([rows, labels], axis=1).astype(np.int32)}
    splits = (graph.split(name) for name in ("train", "valid", "test"))
    return KnowledgeGraph(graph.entities, graph.relations, *splits, labelled=labelled)


def scripted(monkeypatch, **measures):
    """Let validations find these measures, one after another."""
    names = ("mrr", "hits@1", "hits@3", "hits@10")
    rows = zip(*measures.values(), strict=True)
    found = iter(
        {**dict.fromkeys(names, 0.5), **dict(zip(measures, row, strict=True))} for row in rows
    )
    monkeypatch.setattr(Validation, "measure", lambda *given: (next(found), 0.0))


@pytest.mark.parametrize(("select", "best"), [("mrr", 3), ("hits@1", 1), ("accuracy", 2)])
def test_the_best_epoch_is_that_of_the_measure(monkeypatch, select, best):
    values = {"mrr": [0.1, 0.2, 0.4], "hits@1": [0.3, 0.2, 0.1], "accuracy": [0.5, 0.9, 0.7]}
    scripted(monkeypatch, **values)
    run = train(ring(), select=select, epochs=3, valid_every=1)
    assert run.summary["select"] == select
    assert run.summary["best_epoch"] == best
    assert run.summary["valid"][select] == max(values[select])


def test_early_stopping_waits_for_the_measure(monkeypatch):
    falling, rising = [0.9 - 0.01 * n for n in range(20)], [0.1 + 0.01 * n for n in range(20)]
    scripted(monkeypatch, **{"mrr": falling, "hits@3": rising})
    assert (
        train(ring(), epochs=20, valid_every=1, patience=2, select="hits@3").summary["epochs"] == 20
    )
    scripted(monkeypatch, **{"mrr": falling, "hits@3": rising})
    assert train(ring(), epochs=20, valid_every=1, patience=2).summary["epochs"] == 3


@pytest.mark.parametrize("make", [ring, labelled_ring])
def test_accuracy_is_that_of_classification_with_drawn_negatives_or_the_graphs(tmp_path, make):
    run = train(make(), select="accuracy", out=tmp_path / "R", **LEARNT)
    lines = [
        line for line in RunFolder(tmp_path / "R").read_metrics() if line.get("split") == "valid"
    ]
    found = [line["accuracy"] for line in lines]
    assert run.summary["valid"]["accuracy"] == max(found)
    assert run.summary["best_epoch"] == 1 + found.index(max(found))
    report = run.classification("valid")
    assert report.negatives == ("seeded" if make is ring else "data set")
    assert report.accuracy == max(found)


@pytest.mark.parametrize("select", ["hits@10", "accuracy"])
def test_the_measure_is_kept_by_a_resumed_run(tmp_path, select):
    options = {**LEARNT, "select": select}
    train(ring(), out=tmp_path / "R", **{**options, "epochs": 5})
    go_on(tmp_path / "R", epochs=12)
    train(ring(), out=tmp_path / "whole", **options)
    assert kept_bits(tmp_path / "R") == kept_bits(tmp_path / "whole")
    assert untimed_metrics(tmp_path / "R") == untimed_metrics(tmp_path / "whole")
    assert ns.load_run(tmp_path / "R").summary["select"] == select


def test_a_validation_may_rank_some_facts_the_same_ones_each_time(tmp_path):
    graph, few = ring(), 3
    validation = Validation(graph, TrainConfig(valid_facts=few))
    assert len(validation.facts) == few
    assert np.array_equal(validation.facts, Validation(graph, TrainConfig(valid_facts=few)).facts)
    everything = {tuple(fact) for fact in graph.valid.tolist()}
    assert {tuple(fact) for fact in validation.facts.tolist()} < everything
    assert Validation(graph, TrainConfig(valid_facts=10**6)).facts is graph.valid

    run = train(graph, valid_facts=few, out=tmp_path / "R", **LEARNT)
    of_all = run.evaluate("valid").ranks
    place = [graph.valid.tolist().index(fact) for fact in validation.facts.tolist()]
    mrr = (1 / of_all[:, place]).mean()
    assert run.summary["valid"]["mrr"] == pytest.approx(mrr)


@pytest.mark.parametrize("select", ["mrr", "accuracy"])
def test_later_validations_measure_as_the_first_without_parts_that_nobody_asks_for(
    select, monkeypatch
):
    graph = ring()
    config = TrainConfig(**LEARNT, select=select, device="cpu")
    kept = Validation(graph, config)
    for seed in range(3):
        model = random_model("transe", graph.num_entities, graph.num_relations, seed=seed)
        found, _ = kept.measure(model)
        for name in ("head", "tail", "per_relation", "per_cardinality", "without_loops"):
            monkeypatch.setattr(RankingReport, name, property(pytest.fail))
        assert found == Validation(graph, config).measure(model)[0]
        whole = kept.rank(model, "valid", facts=graph.valid.copy()).overall()
        assert {name: found[name] for name in whole} == whole


def test_an_update_draws_the_same_facts_but_for_those_that_it_rejects(tmp_path):
    run = train(ring(), valid_facts=4, out=tmp_path / "R", **LEARNT)

    def drawn(of):
        return {tuple(fact) for fact in Validation(of.graph, of.config).facts.tolist()}

    before = drawn(run)
    (first, *_), (other, *_) = before, {tuple(f) for f in run.graph.valid.tolist()} - before
    for fact, kept in ((first, 3), (other, 4)):
        named = run.graph.named(fact)
        after = drawn(run.update([("new", "r0", "e0")], reject=[named], epochs=1, progress="none"))
        assert (len(after), len(after & before)) == (4, kept)


def test_facts_are_drawn_uniformly():
    facts = np.stack(np.meshgrid(range(40), range(5), range(40)), axis=-1).reshape(-1, 3)
    drawn = drawn_facts(facts.astype(np.int32), 1000)
    assert len(np.unique(drawn, axis=0)) == 1000
    for column, size in ((0, 40), (1, 5), (2, 40)):
        counts = np.bincount(drawn[:, column], minlength=size)
        expected = 1000 / size
        assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize("select", SELECTABLE)
def test_the_measure_is_named_where_a_run_tells_of_itself(tmp_path, capsys, select):
    run = train(ring(), out=tmp_path / "R", select=select, **{**LEARNT, "progress": "lines"})
    name = SELECTABLE[select]
    assert f"valid {name} " in capsys.readouterr().err
    page = run.report(tmp_path / "r.html").read_text()
    assert f"which has the best {name} on valid" in page
    assert ("Accuracy on valid" in page) == (select == "accuracy")
