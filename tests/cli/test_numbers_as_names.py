"""A graph whose names are numbers, in another order than its ids, from training to an update."""

import json

import numpy as np
import pytest

from .helpers import invoke


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """Users who buy items of their kind (relation 1), and kinds of items (relation 0)."""
    rng = np.random.default_rng(0)
    facts = [(item, 0, 90 + item % 3) for item in range(60, 90)]
    facts += [
        (user, 1, item)
        for user in range(60)
        for item in range(60, 90)
        if user % 3 == item % 3 and rng.random() < 0.7
    ]
    file = tmp_path_factory.mktemp("numbers") / "bought.tsv"
    lines = ["\t".join(map(str, facts[place])) for place in rng.permutation(len(facts))]
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="module")
def trained(graph):
    """Where the run is, and what training said."""
    path = graph.parent / "R"
    small = ("--epochs", 40, "--dim", 8, "--lr", 0.05, "--scoring", "complex")
    outcome = invoke("train", graph, "--out", path, *small)
    assert outcome.code == 0, outcome.stderr
    return path, outcome


def said(*arguments):
    outcome = invoke(*arguments)
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout


def test_training_writes_a_report_and_the_explorer_a_page(trained):
    run, outcome = trained
    assert "No report" not in outcome.stdout + outcome.stderr
    assert "Most probable new facts" in (run / "report.html").read_text(encoding="utf-8")
    assert "Report:" in said("report", run)
    assert "Explorer:" in said("explore", run, "--out", run.parent / "page.html")


def test_questions_are_answered_by_name(trained, tmp_path):
    run, _ = trained
    tails = ("predict", run, "--head=7", "--relation=1", "-k", 3, "--known", "--explain")
    heads = ("predict", run, "--tail=61", "--relation=1", "-k", 3, "--known", "--explain")
    for question, side, name in ((tails, "head", "7"), (heads, "tail", "61")):
        answers = json.loads(said(*question, "--json"))["predictions"]
        assert [answer[side] for answer in answers] == [name] * 3
        assert all(answer["explanation"]["sentences"] for answer in answers)
        assert "For: " in said(*question)
    assert "7 · 1 · 61" in said("predict", run, "--head=7", "--relation=1", "--tail=61")
    assert "Most like 7" in said("predict", run, "--neighbours=7")
    claims = tmp_path / "claims.tsv"
    claims.write_text("7\t1\t61\n61\t0\t91\n")
    assert "61 · 0 · 91" in said("classify", run, "--file", claims)


def test_what_is_discovered_can_be_accepted(trained, tmp_path):
    run, _ = trained
    found = tmp_path / "found.tsv"
    facts = json.loads(said("discover", run, "-n", 4, "--out", found, "--json"))["facts"]
    assert len(facts) == 4
    some = json.loads(said("discover", run, "--head=7", "--relation=1", "--json"))["facts"]
    assert {fact["head"] for fact in some} == {"7"}
    new = tmp_path / "new"
    said("update", run, "--accept", found, "--out", new, "--epochs", 1)
    fact = [f"--{part}={facts[0][part]}" for part in ("head", "relation", "tail")]
    judged = json.loads(said("predict", new, *fact, "--json"))["predictions"][0]
    assert judged["split"] == "train"
