"""``nscaching classify``: a split or a file, as JSON and for people."""

import json

import numpy as np
import pytest

import nscaching as ns

from ..runs.towns import towns_graph, towns_run
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


def test_numbers_agree_with_their_nouns(tmp_path):
    facts = [(f"e{n}", "r", f"e{(n + 1) % 20}") for n in range(20)]
    held_out = [("e0", "r", "e5")], [("e1", "s", "e6")]
    graph = ns.KnowledgeGraph.from_triples([*facts, ("e0", "s", "e2")], *held_out)
    train(graph, out=tmp_path / "R", epochs=1, dim=2)
    shown = " ".join(invoke("classify", tmp_path / "R").stdout.split())
    assert "1 fact; the negatives" in shown
    assert "No triple in valid: 1 of 1 relation (*)." in shown


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


def test_claims_show_what_predict_shows(towns_folder, tmp_path):
    loaded = ns.load_run(towns_folder)
    graph = loaded.graph
    fact = graph.named(
        next(row for row in graph.train.tolist() if graph.relations[row[1]] == "in country")
    )
    lie = (*fact[:2], "land0" if fact[2] != "land0" else "land1")
    claims = [fact, graph.named(graph.test[0]), lie, ("town1.1", "near", "land1")]
    file = tmp_path / "claims.tsv"
    file.write_text("".join("\t".join(claim) + "\n" for claim in claims))
    said = invoke("classify", towns_folder, "--file", file).stdout
    for note in ("fact, seen", "fact, held out", "new; contradicts", "never seen with"):
        assert note in said
    rows = json_of("classify", towns_folder, "--file", file)["triples"]
    assert [row["split"] for row in rows] == ["train", "test", None, None]
    assert rows[2]["contradicts"] == list(fact)
    assert rows[2]["probability"] <= loaded.judge(*lie).probability
    assert rows[3]["flags"] == loaded.judge(*claims[3]).flags


def test_label_and_probability_that_disagree_are_marked(run, triples, monkeypatch):
    label, explained = ns.load_run(run).classify([("e2", "r0", "e3")])[0][0], "Undecided: "
    for chance in (0.1, 0.9):
        monkeypatch.setattr("nscaching.runs.asking.Asker.claims", always(chance))
        row = json_of("classify", run, "--file", triples)["triples"][0]
        assert row["undecided"] is bool(label != (chance > 0.5))
        said = invoke("classify", run, "--file", triples).stdout
        assert ("e2 · r0 · e3  undecided" in said) is row["undecided"]
        assert (explained in said) is any(
            row["undecided"] for row in json_of("classify", run, "--file", triples)["triples"]
        )


def test_claims_without_valid_facts_have_no_probability_and_none_is_undecided(tmp_path):
    graph = towns_graph()
    labelled = np.column_stack([graph.valid, np.ones(len(graph.valid), dtype=int)])
    wrong = labelled.copy()
    wrong[:, 2], wrong[:, 3] = np.roll(wrong[:, 2], 7), -1
    both = {"valid": np.concatenate([labelled, wrong])}
    own = ns.KnowledgeGraph(
        graph.entities, graph.relations, graph.train, None, graph.test, labelled=both
    )
    told = {"epochs": 3, "dim": 8, "recipe": "paper", "progress": "none"}
    ns.train(own, out=tmp_path / "R", **told)
    file = tmp_path / "claims.tsv"
    file.write_text("".join("\t".join(graph.named(row)) + "\n" for row in graph.test[:4]))
    rows = json_of("classify", tmp_path / "R", "--file", file)["triples"]
    assert [(row["probability"], row["undecided"]) for row in rows] == [(None, False)] * 4
    said = invoke("classify", tmp_path / "R", "--file", file).stdout
    assert "%" not in said
    assert "These probabilities" not in said


def test_quiet_leaves_remarks_out(run, triples):
    said = invoke("classify", run, "--file", triples, "--quiet").stdout
    assert "e9 · r1 · e9" in said
    assert "These probabilities" not in said


def always(chance):
    return lambda _, triples: np.full(len(triples), np.log(chance / (1 - chance)))


@pytest.fixture(scope="module")
def towns_folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("claims") / "R"
    towns_run(path, epochs=20)
    return path


@pytest.mark.parametrize("command", ["classify", "predict"])
def test_all_unknown_names_of_a_file_are_listed_with_their_lines(run, tmp_path, command):
    file = tmp_path / "mine.csv"
    file.write_text("head,relation,tail\ne2,r7,e3\n\ne2,r1,e2x\ne2,r7,e2x\n")
    said = complaint(command, run, "--file", file)
    assert said.startswith(f"The graph 'ring' lacks names of {file}. Line 2: no relation 'r7'")
    assert ". Line 4: no entity 'e2x'; did you mean 'e2'" in said
    assert said.count("Line ") == 2
    file.write_text("".join(f"e1,r1,unknown{number}\n" for number in range(15)))
    said = complaint(command, run, "--file", file)
    assert "Line 10: no entity 'unknown9'" in said
    assert said.endswith("And 5 more.")
    turtle = tmp_path / "mine.nt"
    turtle.write_text("# two lines\n<e1> <r1> <e2> .\n<e1> <r1> <none> .\n")
    assert "Triple 2: no entity 'none'" in complaint(command, run, "--file", turtle)


def test_a_run_without_valid_is_refused_and_without_test_says_so(tmp_path):
    file = tmp_path / "t.tsv"
    file.write_text("a\tr\tb\nb\tr\tc\nc\tr\ta\n")
    train(file, out=tmp_path / "R", epochs=1, dim=2, split=0.0)
    assert "no valid triples" in complaint("classify", tmp_path / "R")
    assert "or on more facts" in complaint("classify", tmp_path / "R")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.txt").write_text(file.read_text())
    (folder / "valid.txt").write_text("a\tr\tc\n")
    train(folder, out=tmp_path / "S", epochs=1, dim=2)
    for flags in ([], ["--json"]):
        assert "test split is empty" in complaint("classify", tmp_path / "S", *flags)
