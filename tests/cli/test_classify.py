"""``nscaching classify``: a split or a file, as JSON and for people."""

import json

import pytest

import nscaching as ns

from ..training.helpers import train
from .helpers import complaint, invoke


def json_of(*arguments):
    outcome = invoke(*arguments, "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.count("\n") == 1
    return json.loads(outcome.stdout)


@pytest.fixture
def triples(tmp_path):
    file = tmp_path / "mine.tsv"
    file.write_text("e2\tr0\te3\ne9\tr1\te9\ne2\tr0\te3\n")
    return file


@pytest.mark.parametrize("split", ["valid", "test"])
def test_json_of_a_split(run, split):
    values = json_of("classify", run, "--split", split, "--seed", 2, "--replaced", "either")
    report = ns.load_run(run).classification(split, seed=2, replaced="either")
    assert values == {**report.as_dict(), "seconds": values["seconds"]}
    assert 0 <= values["accuracy"] <= 1
    assert (values["split"], values["seed"]) == (split, 2)
    for part in values["per_relation"].values():
        assert set(part) == {"accuracy", "count", "threshold", "own_threshold"}


def test_the_split_is_test_unless_said(run):
    assert json_of("classify", run)["split"] == "test"


def test_a_table_for_people(run):
    shown = invoke("classify", run).stdout
    for word in ("test of ring", "all relations", "r0", "threshold", "%", "drawn with seed 0"):
        assert word in shown


def test_a_file_is_labelled(run, triples):
    labels, margins = ns.load_run(run).classify(
        [("e2", "r0", "e3"), ("e9", "r1", "e9"), ("e2", "r0", "e3")]
    )
    made = json_of("classify", run, "--file", triples)["triples"]
    assert [row["label"] for row in made] == labels.tolist()
    assert [row["margin"] for row in made] == margins.tolist()
    assert [(row["head"], row["relation"], row["tail"]) for row in made][1] == ("e9", "r1", "e9")
    shown = invoke("classify", run, "--file", triples).stdout
    assert "as likely true as false" in shown
    assert "e9 · r1 · e9" in shown
    assert f"{margins[1]:+.3f}" in shown


def test_mistakes_are_one_sentence(run, triples, tmp_path):
    assert "not both" in complaint("classify", run, "--file", triples, "--split", "test")
    assert "tests" in complaint("classify", run, "--split", "tests")
    assert "tail, head, either" in complaint("classify", run, "--replaced", "both")
    assert "none.tsv" in complaint("classify", run, "--file", tmp_path / "none.tsv")
    triples.write_text("e2\tr7\te3\n")
    assert "no relation 'r7'" in complaint("classify", run, "--file", triples)
    triples.write_text("e2\tr1\te3\ne2\tr1\tnone\n")
    said = complaint("classify", run, "--file", triples)
    assert f"Triple 2 of {triples} (e2, r1, none)" in said


def test_a_run_without_valid_is_refused_and_without_test_says_so(tmp_path):
    file = tmp_path / "t.tsv"
    file.write_text("a\tr\tb\nb\tr\tc\nc\tr\ta\n")
    train(file, out=tmp_path / "R", epochs=1, dim=2, split=0.0)
    assert "no valid triples" in complaint("classify", tmp_path / "R")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.txt").write_text(file.read_text())
    (folder / "valid.txt").write_text("a\tr\tc\n")
    train(folder, out=tmp_path / "S", epochs=1, dim=2)
    for flags in ([], ["--json"]):
        assert "test split is empty" in complaint("classify", tmp_path / "S", *flags)
