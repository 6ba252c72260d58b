"""``nscaching tune`` as a person uses it."""

import json

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
    out = tmp_path / "S"
    outcome = invoke("tune", data, "--trials", 2, *SMALL, "--out", out, "--quiet")
    assert outcome.code == 0, outcome
    assert outcome.stderr == ""
    assert "alpha1" in outcome.stdout
    assert f"nscaching train --config {out / 'best.yaml'}" in outcome.stdout


def test_a_search_that_is_there_is_not_replaced_unasked(data, tmp_path):
    out = tmp_path / "S"
    assert invoke("tune", data, "--trials", 1, *SMALL, "--out", out).code == 0
    assert "--resume to go on" in complaint("tune", data, "--trials", 1, *SMALL, "--out", out)
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
