"""``nscaching compare``: JSON, the table, mistakes."""

import json

import pytest

from .helpers import complaint, invoke

SMALL = ["--epochs", 2, "--valid-every", 1, "--dim", 4, "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def made(tmp_path_factory, data):
    out = tmp_path_factory.mktemp("compare") / "C"
    samplers = [
        "--samplers",
        "uniform,self-adversarial:negatives=2",
        "--samplers",
        "nscaching:alpha3=5",
    ]
    outcome = invoke("compare", data, *samplers, "--seeds", "3,4", "--scoring", "transe", *SMALL,
                     "--out", out, "--json")  # fmt: skip
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.count("\n") == 1
    return out, json.loads(outcome.stdout)


def test_json_has_rows_and_runs(made):
    out, values = made
    assert values["samplers"] == ["uniform", "self-adversarial:negatives=2", "nscaching:alpha3=5"]
    assert (values["scoring"], values["seeds"]) == ("transe", [3, 4])
    assert [(run["sampler"], run["seed"]) for run in values["runs"]] == [
        (sampler, seed) for seed in (3, 4) for sampler in values["samplers"]
    ]
    for row in values["rows"]:
        assert 0 < row["mrr"] <= 1
        assert 0 <= row["hits@10"] <= 1
        assert 0 <= row["accuracy"] <= 1
        assert row["mrr_spread"] >= 0
        assert (row["runs"], row["extra_parameters"], len(row["best_epoch"])) == (2, 0, 2)
    assert json.loads((out / "compare.json").read_text()) == values


def test_what_all_may_take_is_said_before_the_first_run(data, tmp_path):
    small = [each for each in SMALL if each != "--quiet"]
    outcome = invoke("compare", data, "--samplers", "uniform,bernoulli", "--seeds", "0,1", *small,
                     "--seconds", 20, "--out", tmp_path / "C")  # fmt: skip
    assert outcome.code == 0, outcome.stderr
    said, first = outcome.stderr.splitlines()[:2]
    assert said == "4 runs of up to 20.0 s of training: up to 1 min 20 s in all."
    assert first.startswith("Run 1 of 4: ")


def test_a_table_for_people(made):
    shown = invoke("compare", "--resume", "--out", made[0], "--quiet").stdout
    for word in ("transe", "uniform", "MRR", "Hits@10", "accuracy", "s/epoch", "±", "seeds 3, 4"):
        assert word in shown
    assert str(made[0] / "compare.json") in shown.replace("\n", "")


def test_failures_are_said_and_only_when_all_fail_the_code_is_1(data, tmp_path):
    bad = "uniform:lr=1e37"
    outcome = invoke("compare", data, "--samplers", f"{bad},bernoulli", "--scoring", "distmult",
                     *SMALL, "--out", tmp_path / "C")  # fmt: skip
    assert outcome.code == 0
    assert "uniform:lr=1e37 failed, seed 0:" in outcome.stdout
    outcome = invoke("compare", data, "--samplers", bad, "--scoring", "distmult", *SMALL,
                     "--out", tmp_path / "D", "--json")  # fmt: skip
    assert outcome.code == 1
    assert json.loads(outcome.stdout)["rows"][0]["mrr"] is None


def test_mistakes_are_one_sentence(data, made, tmp_path):
    assert "unknown sampler 'unifrom'" in complaint("compare", data, "--samplers", "unifrom")
    assert "whole numbers" in complaint("compare", data, "--seeds", "0;1")
    assert "--resume" in complaint("compare", data, *SMALL, "--seeds", "3", "--out", made[0])
    assert "Name a data set" in complaint("compare", "--resume", "--out", tmp_path / "none")
    assert "above 0" in complaint("compare", data, "--seconds", "0")
