"""The loop: what is written, what is kept, when it stops, and the special cases."""

import json
import math

import numpy as np
import pytest

import nscaching as ns
from nscaching import KnowledgeGraph, UserError
from nscaching.models import SCORING
from nscaching.sampling import SAMPLERS
from nscaching.training import TrainConfig, Trainer
from nscaching.training.opening import open_graph
from nscaching.training.step import TrainingStep

from .helpers import bits, ring, train

#: Every sampler with the losses it goes with: margin or logistic, and softmax.
EVERY_SAMPLER = (
    ("all", "softmax"),
    ("uniform", "auto"),
    ("uniform", "softmax"),
    ("bernoulli", "auto"),
    ("bernoulli", "softmax"),
    ("self-adversarial", "auto"),
    ("kbgan", "auto"),
    ("igan", "auto"),
    ("nscaching", "auto"),
    ("nscaching", "softmax"),
)
every_sampler = pytest.mark.parametrize(("sampler", "loss"), EVERY_SAMPLER)


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "epoch"]


def test_every_sampler_is_tested():
    assert {name for name, _ in EVERY_SAMPLER} == set(SAMPLERS)
    with_softmax = {name for name, loss in EVERY_SAMPLER if loss == "softmax"}
    assert with_softmax == {n for n, sampler in SAMPLERS.items() if sampler.both_sides_possible}


# What is written ----------------------------------------------------------------------------------


def test_metrics_have_a_line_an_epoch_and_a_line_an_evaluation(tmp_path):
    run = train(ring(), epochs=5, valid_every=2, out=tmp_path / "R")
    lines = [json.loads(line) for line in (tmp_path / "R" / "metrics.jsonl").open()]
    assert [line["epoch"] for line in lines if line["event"] == "epoch"] == [1, 2, 3, 4, 5]
    evaluations = [line for line in lines if line["event"] == "evaluation"]
    assert [line["epoch"] for line in evaluations if line["split"] == "valid"] == [2, 4, 5]
    (test,) = [line for line in evaluations if line["split"] == "test"]
    assert test["epoch"] == run.summary["best_epoch"]
    for line in evaluations:
        assert {"mrr", "mr", "hits@1", "hits@3", "hits@10"} <= set(line)
    for line in lines:
        assert line["seconds"] >= 0
    assert test["mrr"] == run.summary["test"]["mrr"]


def test_the_loss_of_a_line_is_the_mean_over_positives(tmp_path, monkeypatch):
    sums, original = [], TrainingStep.__call__

    def watched(self, *seen):
        loss = original(self, *seen)
        sums.append(float(loss))
        return loss

    monkeypatch.setattr(TrainingStep, "__call__", watched)
    graph = ring()
    train(graph, epochs=1, out=tmp_path / "R", valid_every=0, batch_size=7)
    assert len(sums) == len(graph.train) / 7
    assert losses(tmp_path / "R") == [pytest.approx(sum(sums) / len(graph.train), rel=1e-5)]


def test_the_folder_holds_what_the_house_says_and_no_pickle(tmp_path):
    train(ring(), out=tmp_path / "R", probabilities=True)
    files = sorted(str(f.relative_to(tmp_path / "R")) for f in (tmp_path / "R").rglob("*.*"))
    assert files == [
        "calibration.json",
        "checkpoint/state.safetensors",
        "config.yaml",
        "entities.txt",
        "graph.safetensors",
        "metrics.jsonl",
        "model.safetensors",
        "nscaching.json",
        "relations.txt",
    ]


def test_without_out_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = train(ring())
    assert run.summary["run"] is None
    assert list(tmp_path.iterdir()) == []


# What is kept -------------------------------------------------------------------------------------


def scripted_validations(monkeypatch, values):
    """Let validations find the given MRRs in turn; other splits are ranked as usual."""
    from nscaching.evaluation import RankingReport

    script = iter(values)
    original = RankingReport.build

    def build(graph, triples, ranks, *, split, seconds):
        report = original(graph, triples, ranks, split=split, seconds=seconds)
        if split == "valid":
            object.__setattr__(report, "mrr", next(script))
        return report

    monkeypatch.setattr(RankingReport, "build", build)


def test_the_kept_model_is_that_of_the_best_validation(tmp_path, monkeypatch):
    options = {"valid_every": 1, "scoring": "transe", "lr": 0.05, "seed": 3}
    scripted_validations(monkeypatch, [0.1, 0.4, 0.3, 0.4])
    run = train(ring(), epochs=4, out=tmp_path / "R", **options)
    assert run.summary["best_epoch"] == 2
    assert run.summary["valid"]["mrr"] == 0.4
    monkeypatch.undo()
    two = train(ring(), epochs=2, **{**options, "valid_every": 0})
    assert bits(ns.load_run(tmp_path / "R", "cpu")) == bits(run) == bits(two)


def test_the_kept_model_validates_as_the_best_line_says(tmp_path):
    run = train(ring(), epochs=12, valid_every=1, scoring="transe", lr=0.05, out=tmp_path / "R")
    lines = ns.training.RunFolder(tmp_path / "R").read_metrics()
    best = max(line["mrr"] for line in lines if line.get("split") == "valid")
    assert run.summary["valid"]["mrr"] == best
    assert ns.load_run(tmp_path / "R", "cpu").evaluate("valid").mrr == best


def test_patience_stops_after_so_many_validations_without_gain(monkeypatch):
    scripted_validations(monkeypatch, [0.1, 0.3, 0.2, 0.3, 0.9, 0.1, 0.1, 0.1, 0.95])
    run = train(ring(), epochs=90, valid_every=2, patience=3)
    assert run.summary["epochs"] == 16
    assert run.summary["best_epoch"] == 10


def test_no_patience_never_stops_early(monkeypatch):
    scripted_validations(monkeypatch, [0.5] + 9 * [0.1])
    assert train(ring(), epochs=10, valid_every=1, patience=0).summary["epochs"] == 10


def test_without_validation_the_last_model_is_kept():
    run = train(ring(), epochs=3, valid_every=0)
    assert run.summary["best_epoch"] == 3
    assert run.summary["valid"] is None
    assert run.summary["test"]["mrr"] > 0


def test_the_last_epoch_is_always_validated():
    assert train(ring(), epochs=3, valid_every=100).summary["valid"] is not None


# Special cases ------------------------------------------------------------------------------------


@every_sampler
@pytest.mark.parametrize("scoring", SCORING)
def test_every_scoring_function_learns_with_every_sampler(tmp_path, scoring, sampler, loss):
    run = train(
        ring(),
        scoring=scoring,
        sampler=sampler,
        loss=loss,
        generator_dim=4,
        generator_memory=1,
        epochs=8,
        lr=0.03,
        valid_every=0,
        out=tmp_path / "R",
    )
    found = losses(tmp_path / "R")
    assert all(map(math.isfinite, found))
    assert np.mean(found[-3:]) < np.mean(found[:3])
    assert np.isfinite(run.embeddings()).all()


@pytest.mark.parametrize("loss", ["margin", "logistic", "softmax"])
@pytest.mark.parametrize("scoring", SCORING)
def test_every_loss_goes_with_any_scoring_function(tmp_path, scoring, loss):
    train(ring(), scoring=scoring, loss=loss, epochs=8, lr=0.05, out=tmp_path / "R")
    found = losses(tmp_path / "R")
    assert found[-1] < found[0]


def test_training_finds_the_ring():
    graph = ring(30, 3, held_out=6)
    run = train(graph, scoring="rotate", dim=16, epochs=150, lr=0.05, patience=0, valid_every=50)
    assert run.summary["test"]["mrr"] > 0.5


@every_sampler
def test_an_empty_valid_split_is_fine(tmp_path, sampler, loss):
    graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")])
    run = train(graph, sampler=sampler, loss=loss, out=tmp_path / "R")
    assert run.summary["valid"] is None
    assert run.summary["test"] is None
    with pytest.raises(UserError, match="test split is empty"):
        ns.load_run(tmp_path / "R").evaluate("test")


@every_sampler
def test_one_relation_and_two_entities_are_fine(sampler, loss):
    graph = KnowledgeGraph.from_triples([("a", "r", "b")], test=[("b", "r", "a")])
    run = train(graph, sampler=sampler, loss=loss, negatives=3)
    assert np.isfinite(run.embeddings()).all()


@every_sampler
def test_a_graph_without_any_negative_is_fine(sampler, loss):
    everything = [(h, "r", t) for h in "ab" for t in "ab"]
    graph = KnowledgeGraph.from_triples(everything)
    for known_positives in ("exclude", "allow"):
        options = {"loss": loss, "known_positives": known_positives, "epochs": 3}
        run = train(graph, sampler=sampler, **options)
        assert np.isfinite(run.embeddings()).all()


def test_fewer_entities_than_the_cache_wants_are_fine():
    run = train(ring(entities=12, held_out=3), cache_size=50, candidates=50, alpha2=1.0)
    assert np.isfinite(run.embeddings()).all()


@pytest.mark.parametrize(
    ("sampler", "loss"),
    [each for each in EVERY_SAMPLER if each not in (("all", "softmax"), ("nscaching", "softmax"))],
)
def test_several_negatives_per_positive(sampler, loss):
    one, five = (train(ring(), sampler=sampler, loss=loss, negatives=n) for n in (1, 5))
    assert bits(one) != bits(five)
    assert np.isfinite(five.embeddings()).all()


def test_a_graph_without_training_triples_is_refused(tmp_path):
    graph = KnowledgeGraph(["a"], ["r"], [])
    with pytest.raises(UserError, match="no training triples"):
        train(graph, out=tmp_path / "R")
    assert not (tmp_path / "R").exists()


# Seeds --------------------------------------------------------------------------------------------


@every_sampler
def test_the_seed_decides_every_bit(sampler, loss):
    options = {"sampler": sampler, "loss": loss, "alpha1": 0.5, "alpha2": 0.5, "negatives": 2}
    first, again, other = (train(ring(), seed=seed, **options) for seed in (5, 5, 6))
    assert bits(first) == bits(again)
    assert bits(first) != bits(other)


def test_keeping_a_run_does_not_change_its_bits(tmp_path):
    kept = train(ring(), epochs=4, out=tmp_path / "R", checkpoint_seconds=0)
    assert bits(kept) == bits(train(ring(), epochs=4))


# Starting from another run ------------------------------------------------------------------------


def test_init_from_starts_at_the_parameters_of_the_run(tmp_path):
    source = train(ring(), out=tmp_path / "A", epochs=5, sampler="bernoulli")
    config = ns.TrainConfig(dim=8, init_from=str(tmp_path / "A"), device="cpu")
    trainer = Trainer(ring(), config, None, ns.Progress("none"))
    assert (trainer.model.entity.numpy() == source.embeddings()).all()
    assert (trainer.model.relation.numpy() == source.embeddings("relation")).all()
    assert train(ring(), init_from=str(tmp_path / "A"), epochs=1).summary["epochs"] == 1


def test_init_from_refuses_what_does_not_fit(tmp_path):
    train(ring(), out=tmp_path / "A")
    source = str(tmp_path / "A")
    for options, graph, words in (
        ({"dim": 9}, ring(), "was trained with dim 8, this run has dim 9; they must be the same"),
        ({"scoring": "transe"}, ring(), "trained with scoring simple, this run has scoring trans"),
        ({"reciprocal": True}, ring(), "reciprocal"),
        ({}, ring(entities=31), "other entities or relations"),
        ({"init_from": str(tmp_path / "none")}, ring(), "is not there"),
    ):
        with pytest.raises(UserError, match=words):
            train(graph, out=tmp_path / "B", **{"init_from": source, **options})
        assert not (tmp_path / "B").exists()


def test_a_file_that_is_called_like_a_data_set_is_not_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "world").write_text("a\tr\tb\n")
    graph = open_graph(TrainConfig(data="world"))
    assert len(graph.valid) > 1000
    assert open_graph(TrainConfig(data="./world", split=0.0)).entities == ["a", "b"]
