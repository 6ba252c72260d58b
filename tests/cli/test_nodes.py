import json
import signal

import numpy as np
import pytest

from nscaching.training import Progress

from .helpers import complaint, invoke

QUICK = ["--dim", 8, "--walks-per-node", 4, "--walk-length", 10, "--window", 3, "--epochs", 3]
QUICK += ["--cache-size", 5, "--candidates", 5, "--batch-size", 80, "--lr", 0.02]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An edge list of two cliques with one edge between them, and the class of each node."""
    folder = tmp_path_factory.mktemp("cliques")
    size = 12
    sides = {"left": range(size), "right": range(size, 2 * size)}
    pairs = [(a, b) for side in sides.values() for a in side for b in side if a < b]
    lines = "".join(f"n{a} n{b}\n" for a, b in [*pairs, (0, size)])
    (folder / "edges.txt").write_text(lines)
    named = [(f"n{at}", name) for name, side in sides.items() for at in side]
    (folder / "labels.txt").write_text("".join(f"{a}\t{b}\n" for a, b in [*named, ("n99", "left")]))
    return folder


@pytest.fixture(scope="module")
def embedded(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "E"
    labels = ["--labels", files / "labels.txt", "--held-out", 0.1]
    outcome = invoke("nodes", "train", files / "edges.txt", "--out", out, *labels, *QUICK)
    assert outcome.code == 0, outcome
    assert f"Folder: {out}" in outcome.stdout
    return out


def test_train_says_in_json_what_it_did(files, tmp_path):
    out = tmp_path / "E"
    outcome = invoke("nodes", "train", files / "edges.txt", "--out", out, "--json", *QUICK)
    said = json.loads(outcome.stdout)
    assert (said["nodes"], said["edges"], said["epochs"]) == (24, 133, 3)
    assert said["out"] == str(out)
    assert not said["stopped"]


def test_evaluate_gives_what_the_contract_names(embedded):
    said = json.loads(invoke("nodes", "evaluate", embedded, "--json").stdout)
    assert list(said["classification"]) == ["30%", "50%", "70%"]
    for scores in said["classification"].values():
        assert set(scores) == {"micro_f1", "macro_f1"}
        assert all(set(score) == {"mean", "std"} for score in scores.values())
    assert said["classification"]["70%"]["micro_f1"]["mean"] > 0.8
    assert 0 <= said["link_prediction"]["auc"] <= 1
    shown = invoke("nodes", "evaluate", embedded).stdout
    assert "50% of the labels" in shown
    assert "AUC" in shown


def test_neighbours_and_export(embedded, tmp_path):
    said = json.loads(invoke("nodes", "neighbours", embedded, "n3", "-k", 4, "--json").stdout)
    assert len(said["neighbours"]) == 4
    assert set(said["neighbours"][0]) == {"node", "similarity"}
    assert "left" in invoke("nodes", "neighbours", embedded, "n3").stdout
    said = json.loads(invoke("nodes", "export", embedded, tmp_path / "v.npy", "--json").stdout)
    assert np.load(said["files"][0]).shape == (25, 8)


def test_compare_makes_the_papers_table(files):
    short = ["--seeds", 1, "--draws", 2, "--epochs", 1, "--quiet"]
    labels = ["--labels", files / "labels.txt"]
    outcome = invoke("nodes", "compare", files / "edges.txt", *labels, *short, "--json")
    said = json.loads(outcome.stdout)
    assert list(said["methods"]) == ["LINE", "Node2vec", "SeedNE", "NSCaching"]
    assert said["methods"]["LINE"]["50%"]["micro_f1"]["paper"] is None
    shown = invoke("nodes", "compare", files / "edges.txt", *labels, *short).stdout
    assert "NSCaching" in shown


def test_mistakes_get_one_sentence(files, embedded, tmp_path):
    edges = files / "edges.txt"
    assert "no graph of that name" in complaint("nodes", "train", tmp_path / "no.txt")
    assert "Name a graph" in complaint("nodes", "train")
    assert "did you mean 'nscaching'" in complaint("nodes", "train", edges, "--sampler", "nscach")
    assert "--overwrite" in complaint("nodes", "train", edges, "--out", embedded)
    assert "at least 1" in complaint("nodes", "train", edges, "--dim", "0")
    assert "no node 'x'" in complaint("nodes", "neighbours", embedded, "x")
    assert "'n99' has no edge" in complaint("nodes", "neighbours", embedded, "n99")
    assert "is not there" in complaint("nodes", "evaluate", tmp_path / "nowhere")
    assert "no classes" in complaint("nodes", "compare", edges)
    plain = tmp_path / "plain"
    assert invoke("nodes", "train", edges, "--out", plain, *QUICK).code == 0
    assert "nothing to evaluate" in complaint("nodes", "evaluate", plain)
    said = complaint("nodes", "evaluate", plain, "--labels", files / "labels.txt")
    assert f"names 1 node that {plain} lacks, such as 'n99'; leave" in said


def test_a_knowledge_graph_is_no_edge_list(tmp_path):
    (tmp_path / "kg.tsv").write_text("Paris\tcapital of\tFrance\n")
    said = complaint("nodes", "train", tmp_path / "kg.tsv", "--out", tmp_path / "E")
    assert "weight 'France'" in said


def test_a_stop_keeps_what_there_is(files, tmp_path, monkeypatch):
    steps = []

    def stop_at_the_fifth(bar, share):
        steps.append(share)
        if len(steps) == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Progress.Bar, "within_epoch", stop_at_the_fifth)
    out = tmp_path / "E"
    outcome = invoke("nodes", "train", files / "edges.txt", "--out", out, "--json", *QUICK)
    assert outcome.code == 130
    assert outcome.stdout == ""
    assert "Stopped after 0 whole epochs of 3" in outcome.stderr
    assert len(steps) == 5
    assert invoke("nodes", "neighbours", out, "n1").code == 0
