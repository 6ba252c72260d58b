"""discover, update, and the answers of predict."""

import json
import shutil
import signal

import pandas
import pytest

import nscaching as ns
from nscaching.artefacts import FolderLock
from nscaching.errors import resume_command
from nscaching.graph import read_triples
from nscaching.runs.predictions import Predictions
from nscaching.training.step import TrainingStep

from ..runs.towns import towns_run
from ..training.helpers import go_on, ring, train
from ..training.test_interrupt import signal_at
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


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("g.tsv", ("discover", "RUN", "--out", "FILE")),
        ("g.csv", ("predict", "RUN", "--head", "town1.1", "--relation", "near", "--out", "FILE")),
        ("g.txt", ("export", "RUN", "FILE")),
        ("g.html", ("explore", "RUN", "--out", "FILE")),
        ("g.html", ("report", "RUN", "--out", "FILE")),
    ],
)
def test_a_file_of_the_user_is_not_written_over(run, tmp_path, name, command):
    file = tmp_path / name
    file.write_text("a\tr\tb\n")
    said = complaint(*({"RUN": run, "FILE": file}.get(part, part) for part in command))
    assert f"{file} exists and is not " in said
    assert file.read_text() == "a\tr\tb\n"


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


def test_explained_answers_are_written_with_their_evidence(run, tmp_path):
    asked = ("predict", run, "--head", "town1.1", "--relation", "near", "-k", 3, "--explain")
    for kind in ("csv", "tsv", "parquet", "json"):
        file = tmp_path / f"p.{kind}"
        answers = json_of(*asked, "--out", file)["predictions"]
        frame = readers[kind](file)
        said = [row["explanation"]["sentences"] for row in answers]
        assert frame["evidence"].tolist() == ["; ".join(s.rstrip(".") for s in e) for e in said]
    assert [row[2] for row in read_triples(tmp_path / "p.csv")] == [row["tail"] for row in answers]
    invoke(*asked[:-1], "--out", tmp_path / "q.csv")
    assert "evidence" not in (tmp_path / "q.csv").read_text()


readers = {
    "csv": pandas.read_csv,
    "tsv": lambda file: pandas.read_csv(file, sep="\t", quoting=3),
    "parquet": pandas.read_parquet,
    "json": pandas.read_json,
}


def test_questions_of_a_file_without_an_answer_are_told(run, tmp_path):
    loaded = ns.load_run(run)
    town, speaks, _ = loaded.graph.named(
        next(f for f in loaded.graph.train.tolist() if loaded.graph.relations[f[1]] == "speaks")
    )
    file, out = tmp_path / "q.tsv", tmp_path / "p.csv"
    file.write_text(f"{town}\tspeaks\t?\ntown1.1\tnear\t?\n")
    assert loaded.ask(file).unanswered == [(town, speaks, None)]
    outcome = invoke("predict", run, "--file", file, "--out", out)
    assert f"\n{town} · speaks · ?: no new answer is likely\n" in outcome.stdout
    assert "--contradictions shows answers" in outcome.stdout
    assert "p.csv lacks 1 question without an answer.\n" in outcome.stderr
    told = {"head": town, "relation": speaks, "tail": None}
    assert json_of("predict", run, "--file", file)["unanswered"] == [told]
    assert json_of("predict", run, "--file", file, "--known")["unanswered"] == []
    assert "likely" not in invoke("predict", run, "--file", file, "--known").stdout


def test_what_probabilities_assume_stands_under_the_table(run):
    loaded = ns.load_run(run)
    counts = [len(loaded.graph.split(split)) for split in ("train", "valid", "test")]
    share = counts[1] / sum(counts)
    said = f"as many facts as valid holds: {counts[1]}, {share:.1%} of those it has.\n"
    for command in (
        ("discover", run, "-n", 3),
        ("predict", run, "--head", "town1.1", "--relation", "near"),
        ("predict", run, "--head", "town1.1", "--relation", "near", "--tail", "town1.3"),
    ):
        assert said in invoke(*command).stdout
        assert said not in invoke(*command, "--quiet").stdout
        assert json_of(*command)


def test_relations_with_few_valid_facts_are_named(run, monkeypatch):
    asked = ("discover", run, "-n", 30, "--per-relation", 3, "--contradictions", "--unlikely")
    assert "Few valid facts" not in invoke(*asked).stdout  # all rest on few, which is said
    monkeypatch.setattr("nscaching.evaluation.calibration._FEW_FACTS", 1)
    monkeypatch.setattr("nscaching.runs.learning._FEW_FACTS", 1)
    few = "Few valid facts of 'has language' (0): its probabilities lean on other relations.\n"
    assert few in invoke(*asked).stdout
    monkeypatch.setattr("nscaching.runs.learning._FEW_FACTS", 1000)
    assert ": their probabilities lean on other relations.\n" in invoke(*asked).stdout
    assert "Few valid facts" not in invoke(*asked, "--quiet").stdout


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


def test_facts_alone_say_what_else_there_is(run):
    question = ("predict", run, "--head", "town1.1", "--relation", "near", "--known")
    facts = json_of(*question, "-k", 60, "--contradictions")["predictions"]
    first = next(place for place, row in enumerate(facts) if not row["known"])
    said = invoke(*question, "-k", first).stdout
    assert f"The first {first} answers are all facts; a larger -k shows what follows." in said
    assert "No new answer is likely." not in said
    said = invoke(*question, "-k", first + 1).stdout
    assert "all facts" not in said


def test_only_options_that_were_not_given_are_named(run):
    loaded = ns.load_run(run)
    fact = next(f for f in loaded.graph.train.tolist() if loaded.graph.relations[f[1]] == "speaks")
    question = ("predict", run, "--head", loaded.graph.entities[fact[0]], "--relation", "speaks")
    shows = "\n--contradictions shows answers that contradict the graph"
    shows += ", --unlikely shows answers never seen with the relation"
    assert f"{shows}, --known shows the facts.\n" in invoke(*question).stdout
    assert f"{shows}.\n" in invoke(*question, "--known").stdout
    said = invoke(*question, "--unlikely", "--known").stdout
    assert "\n--contradictions shows answers that contradict the graph.\n" in said
    assert "--contradictions" not in invoke(*question, "--by", "score").stdout


def test_small_probabilities_are_no_zeros(run):
    question = ("predict", run, "--head", "town1.1", "--relation", "in country", "-k", 200)
    every = ("--unlikely", "--contradictions")
    lowest = json_of(*question, *every)["predictions"][-1]
    assert lowest["probability"] < 0.0005
    said = invoke(*question, *every).stdout
    assert "<0.1%" in said
    assert " 0.0%" not in said
    assert ": <0.1%, score" in repr(
        ns.load_run(run).judge(*(lowest[part] for part in ("head", "relation", "tail")))
    )


def test_discover_says_why_it_finds_nothing(run, monkeypatch):
    monkeypatch.setattr(ns.Run, "discover", lambda *_, **__: Predictions())
    shows = "--unlikely shows answers never seen with the relation.\n"
    assert invoke("discover", run, "--contradictions").stdout == f"No new fact was found.\n{shows}"
    shows = f"--contradictions shows answers that contradict the graph, {shows}"
    assert invoke("discover", run).stdout == f"No new fact was found.\n{shows}"
    assert invoke("discover", run, "--contradictions", "--unlikely").stdout == (
        "No new fact was found.\n"
    )
    assert json_of("discover", run) == {"facts": []}


def test_other_relations_are_named_only_where_there_are_some(run, tmp_path):
    heads = ("--head", "town1.1", "-n", 2, "--contradictions", "--unlikely")
    assert "of one relation" in invoke("discover", run, *heads).stdout
    assert "of one relation" not in invoke("discover", run, *heads, "--per-relation", 2).stdout
    train(ring(relations=1), out=tmp_path / "R")
    said = invoke("discover", tmp_path / "R", "-n", 2, "--contradictions", "--unlikely").stdout
    assert "2 new facts" in said
    assert "of one relation" not in said


def questions_of(folder, tmp_path):
    """Return a question of each kind that answers with probabilities."""
    (tmp_path / "claims.tsv").write_text("e0\tr0\te1\n")
    every = ("--unlikely", "--contradictions")
    return [
        ("predict", folder, "--head", "e0", "--relation", "r0", *every),
        ("discover", folder, *every),
        ("classify", folder, "--file", tmp_path / "claims.tsv"),
    ]


def assert_remarked(command, remark):
    outcome = invoke(*command, "--json")
    assert remark in outcome.stderr, outcome
    assert json.loads(outcome.stdout)
    assert invoke(*command, "--quiet").stderr == ""


def test_probabilities_from_few_facts_are_remarked_on(tmp_path):
    train(ring(held_out=3), out=tmp_path / "R")
    few = "The probabilities rest on 3 facts of valid: take them as an order only.\n"
    for command in questions_of(tmp_path / "R", tmp_path):
        assert_remarked(command, few)
    assert invoke("evaluate", tmp_path / "R").stderr == ""
    train(ring(held_out=30), out=tmp_path / "more")
    for command in questions_of(tmp_path / "more", tmp_path):
        assert invoke(*command).stderr == ""


def test_a_run_without_valid_facts_says_that_it_has_scores_only(tmp_path):
    train(ring(held_out=0), out=tmp_path / "R", split=0.0)
    why = "There are no probabilities, because no facts were held out for valid."
    question = ["predict", tmp_path / "R", "--head", "e2", "--relation", "r0"]
    discover = ["discover", tmp_path / "R", "--contradictions"]
    for command in ([*question, "--contradictions"], discover):
        assert why in " ".join(invoke(*command).stdout.split())
        assert why not in " ".join(invoke(*command, "--quiet").stdout.split())


def test_a_run_that_was_stopped_says_so(tmp_path, monkeypatch):
    folder = tmp_path / "R"
    signal_at(monkeypatch, TrainingStep, "__call__", 8, signal.SIGTERM)
    with pytest.raises(ns.TrainingInterrupted):
        train(ring(), out=folder, batch_size=16, epochs=3)  # five steps an epoch
    monkeypatch.undo()
    asked = [*questions_of(folder, tmp_path), ("evaluate", folder), ("classify", folder)]
    again = resume_command("train", folder)
    stands = f"This run is not finished: it stands in epoch 2 of 3. Resume it with: {again}\n"
    for command in asked:
        assert_remarked(command, stands)
    lock = FolderLock(folder)
    lock.acquire()
    lock.file.write_text('{"pid": 7, "host": "elsewhere"}')
    goes_on = "This run is not finished: it stands in epoch 2 of 3, and process 7 on elsewhere "
    assert invoke("evaluate", folder).stderr.startswith(goes_on)
    lock.release()
    go_on(folder)
    assert "not finished" not in invoke(*asked[0]).stderr


def test_update_learns_from_files(run, tmp_path):
    facts, no = tmp_path / "facts.tsv", tmp_path / "no.tsv"
    facts.write_text("newtown\tin country\tland1\ntown1.1\tin contry\tland1\n")
    rejected = ns.load_run(run).discover(1)[0].triple
    no.write_text("\t".join(rejected) + "\n")
    out = tmp_path / "next"
    said = invoke("update", run, "--facts", facts, "--reject", no, "--out", out, "--epochs", 1)
    assert said.code == 0, said
    told = " ".join(said.stdout.split())
    assert "+2 training triples, +1 entity, 1 rejected fact." in told
    assert told.endswith("New entities: newtown. New relations: in contry.")
    assert ns.load_run(out).rejected == {rejected}
    assert "nothing to update" in complaint("update", run, "--out", tmp_path / "none")
    assert "holds a run already" in complaint("update", run, "--facts", facts, "--out", out)
