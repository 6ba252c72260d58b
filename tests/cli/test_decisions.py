"""discover, update, and the answers of predict."""

import json
import shutil

import pytest

import nscaching as ns

from ..runs.towns import towns_run
from .helpers import complaint, invoke


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("decisions") / "R"
    towns_run(path, epochs=20)
    return path


def json_of(*arguments):
    outcome = invoke(*arguments, "--json")
    assert outcome.code == 0, outcome
    return json.loads(outcome.stdout)


def test_discover_prints_what_python_finds(run, tmp_path):
    expected = ns.load_run(run).discover(6, relations=["near"], per_question=1)
    given = ("discover", run, "-n", 6, "--relation", "near", "--per-question", 1)
    assert json_of(*given)["facts"] == expected.as_dicts()
    shown = invoke(*given, "--out", tmp_path / "facts.tsv").stdout
    assert " · ".join(expected[0].triple) in shown
    assert f"{expected[0].probability:.1%}" in shown
    assert len((tmp_path / "facts.tsv").read_text().splitlines()) == 7
    assert "no relation 'nearby'" in complaint("discover", run, "--relation", "nearby")


def test_a_fit_that_takes_long_is_announced(run, tmp_path, monkeypatch):
    other = tmp_path / "R"
    shutil.copytree(run, other)
    (other / "calibration.json").unlink()
    question = ("predict", other, "--head", "town1.1", "--relation", "near")
    monkeypatch.setattr("nscaching.cli.ask._MANY_ENTITIES", 1)
    assert "Fitting probabilities" in invoke(*question).stderr
    assert "Fitting probabilities" not in invoke(*question).stderr  # they are kept


def test_predict_answers_a_file_and_explains(run, tmp_path):
    file = tmp_path / "q.tsv"
    file.write_text("town1.1\tnear\t?\n?\tin country\tland2\n")
    answers = json_of("predict", run, "--file", file, "-k", 2, "--unlikely")["predictions"]
    assert [row["head"] for row in answers[:2]] == ["town1.1", "town1.1"]
    assert [row["tail"] for row in answers[2:]] == ["land2", "land2"]
    question = ("predict", run, "--head", "town1.1", "--relation", "in country", "--known", "-k", 1)
    explained = json_of(*question, "--explain")["predictions"][0]["explanation"]
    assert explained["paths"]
    assert "For: " in invoke(*question, "--explain").stdout
    assert "Give --neighbours, or --file" in complaint(*question, "--file", file)
    assert "by must be" in complaint(*question, "--by", "luck")


def test_head_answers_are_explained_with_their_own_flags(run):
    question = ("predict", run, "--relation", "near", "--tail", "town1.1", "-k", 60, "--unlikely")
    answers = json_of(*question, "--explain")["predictions"]
    assert any(row["flags"] for row in answers)
    for row in answers:
        told = [f"Against: {flag}." for flag in row["flags"]]
        said = row["explanation"]["sentences"]
        assert [each for each in said if "Against: " in each and "no path" not in each] == told


def test_a_question_without_an_answer_to_explain_says_so(run):
    loaded = ns.load_run(run)
    fact = next(f for f in loaded.graph.train.tolist() if loaded.graph.relations[f[1]] == "speaks")
    question = ("predict", run, "--head", loaded.graph.entities[fact[0]], "--relation", "speaks")
    assert "has the one answer already" in invoke(*question, "--explain").stdout
    assert json_of(*question, "--explain") == {"predictions": []}


def test_an_answered_question_says_so(run):
    loaded = ns.load_run(run)
    fact = next(f for f in loaded.graph.train.tolist() if loaded.graph.relations[f[1]] == "speaks")
    question = ("predict", run, "--head", loaded.graph.entities[fact[0]], "--relation", "speaks")
    has = f"The graph has the one answer already: {loaded.graph.entities[fact[2]]}."
    assert has in invoke(*question).stdout
    odd = invoke("predict", run, "--head", "land1", "--relation", "in country").stdout
    assert "land1 is no head of 'in country'; it is of 'has language'." in odd
    assert "contradicts" in invoke(*question, "--contradictions").stdout


def test_update_learns_from_files(run, tmp_path):
    facts, no = tmp_path / "facts.tsv", tmp_path / "no.tsv"
    facts.write_text("newtown\tin country\tland1\n")
    rejected = ns.load_run(run).discover(1)[0].triple
    no.write_text("\t".join(rejected) + "\n")
    out = tmp_path / "next"
    said = invoke("update", run, "--facts", facts, "--reject", no, "--out", out, "--epochs", 1)
    assert said.code == 0, said
    assert "+1 training triples, +1 entities, 1 rejected facts" in " ".join(said.stdout.split())
    assert ns.load_run(out).rejected == {rejected}
    assert "nothing to update" in complaint("update", run, "--out", tmp_path / "none")
    assert "holds a run already" in complaint("update", run, "--facts", facts, "--out", out)
