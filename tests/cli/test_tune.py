"""``nscaching tune`` as a person uses it."""

import json
import shlex

import pytest

from .helpers import complaint, invoke

pytest.importorskip("smac")

SMALL = (
    *("--epochs", 2, "--dim", 4, "--batch-size", 32, "--valid-every", 1),
    *("--device", "cpu", "--method", "random"),
)


def test_json_is_one_object_with_trials_and_best(data, tmp_path):
    out = tmp_path / "S"
    outcome = invoke("tune", data, "--trials", 2, *SMALL, "--out", out, "--json")
    assert outcome.code == 0, outcome
    said = json.loads(outcome.stdout)
    assert [trial["number"] for trial in said["trials"]] == [1, 2]
    assert said["best"]["mrr"] == max(trial["mrr"] for trial in said["trials"])
    assert said["best"]["config"] == said["trials"][said["best"]["trial"] - 1]["config"]
    assert "2/2 done, best valid MRR" in outcome.stderr
    trained = invoke("train", "--config", out / "best.yaml", "--out", tmp_path / "R", "--json")
    assert json.loads(trained.stdout)["valid"]["mrr"] == said["best"]["mrr"]


def test_a_person_sees_the_trials_the_best_and_what_to_do_next(data, tmp_path):
    out = tmp_path / "a search"
    outcome = invoke("tune", data, "--trials", 2, *SMALL, "--out", out, "--quiet")
    assert outcome.code == 0, outcome
    assert outcome.stderr == ""
    assert "alpha1" in outcome.stdout
    assert "…" not in outcome.stdout  # every number of the table is whole
    assert f"nscaching train --config {shlex.quote(str(out / 'best.yaml'))}" in outcome.stdout


def test_a_search_that_is_there_is_not_replaced_unasked(data, tmp_path):
    out = tmp_path / "S"
    assert invoke("tune", data, "--trials", 1, *SMALL, "--out", out).code == 0
    assert "Resume it (--resume" in complaint("tune", data, "--trials", 1, *SMALL, "--out", out)
    again = invoke("tune", data, "--trials", 1, *SMALL, "--out", out, "--overwrite")
    assert again.code == 0


def test_mistakes_are_one_sentence(data, tmp_path):
    out = ["--out", tmp_path / "S"]
    assert "did you mean 'world'" in complaint("tune", "wurld", *out)
    assert "no search to resume" in complaint("tune", "--resume", *out)
    assert "--out" in complaint("tune", "--resume")
    assert "did you mean 'smac'" in complaint("tune", data, "--method", "smca", *out)
    assert "at least 1" in complaint("tune", data, "--trials", 0, *out)
    assert "--space" in complaint("tune", data, "--sampler", "uniform", *out)
    assert not (tmp_path / "S").exists()


@pytest.fixture
def edges(tmp_path):
    """Two cliques joined by an edge, and their classes, as files."""
    sides = {"left": range(10), "right": range(10, 20)}
    pairs = [(a, b) for side in sides.values() for a in side for b in side if a < b]
    lines = [f"n{a} n{b}\n" for a, b in [*pairs, (0, 10)]]
    (tmp_path / "edges.txt").write_text("".join(lines))
    labels = [f"n{at} {name}\n" for name, side in sides.items() for at in side]
    (tmp_path / "labels.txt").write_text("".join(labels))
    return tmp_path / "edges.txt"


NODES = ("--trials", 2, "--method", "random", "--dim", 4, "--epochs", 1)


def test_nodes_are_tuned_and_the_best_file_trains_them(edges, tmp_path):
    out, labels = tmp_path / "S", edges.with_name("labels.txt")
    told = ("--labels", labels, "--seeds", 1, "--walk-length", 8, *NODES, "--out", out)
    outcome = invoke("nodes", "tune", edges, *told, "--json")
    assert outcome.code == 0, outcome
    said = json.loads(outcome.stdout)
    assert said["best"]["micro_f1"] == max(trial["micro_f1"] for trial in said["trials"])
    assert "2/2 done, best valid micro-F1" in outcome.stderr
    trained = invoke("nodes", "train", "--config", out / "best.yaml", "--out", tmp_path / "E")
    assert trained.code == 0, trained
    shown = invoke("nodes", "tune", "--resume", "--out", out, "--trials", 3)
    assert f"nscaching nodes train --config {out / 'best.yaml'}" in shown.stdout
    assert "negatives" in shown.stdout


def test_tune_itself_takes_the_space_of_nodes(edges, tmp_path):
    told = ("--space", "nodes", *NODES, "--out", tmp_path / "S")
    outcome = invoke("tune", edges, *told, "--json")
    assert outcome.code == 0, outcome
    said = json.loads(outcome.stdout)
    assert said["metric"] == "auc"  # the nodes have no classes
    assert set(said["best"]["config"]) >= {"negatives", "alpha2", "alpha3"}
    refused = complaint("tune", edges, *told[:-1], tmp_path / "T", "--scoring", "transe")
    assert "unknown option 'scoring'" in refused


def test_a_graph_without_relations_goes_to_the_other_command(tmp_path):
    out = ["--out", tmp_path / "S"]
    assert "nscaching nodes tune cora" in complaint("tune", "cora", *out)
    assert "Name a graph" in complaint("nodes", "tune", *out)
