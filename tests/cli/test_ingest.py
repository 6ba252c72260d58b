"""``nscaching ingest`` says what it made, and names what it cannot read."""

import json

import pytest

from tests.cli.helpers import complaint, invoke

pytest.importorskip("duckdb")
LINES = "".join(f"entity {n % 37}\tr{n % 3}\tentity {n * n % 41}\n" for n in range(600))


def test_a_file_becomes_a_graph_that_other_commands_read(tmp_path):
    file, store = tmp_path / "x.tsv", tmp_path / "store"
    file.write_text(LINES)
    made = invoke("ingest", file, "--out", store, "--split", 0.05, "--threads", 1, "--json")
    told = json.loads(made.stdout)
    assert told["graph"] == str(store)
    assert told["entities"] == len(
        {name for line in LINES.splitlines() for name in line.split("\t")[::2]}
    )
    assert told["train"] + told["valid"] + told["test"] + told["duplicates"] == 600
    described = json.loads(invoke("datasets", "info", store, "--json").stdout)
    assert described["train"] == told["train"]
    plan = json.loads(invoke("train", store, "--dry-run", "--json").stdout)
    assert plan["entities"] == told["entities"]
    text = invoke("ingest", file, "--out", tmp_path / "other")
    assert "duplicate lines of train were dropped" in text.stdout
    assert "holds a graph already" in complaint("ingest", file, "--out", store)


def test_a_run_on_it_is_reported_and_explored(tmp_path):
    file, store, out = tmp_path / "x.tsv", tmp_path / "store", tmp_path / "R"
    file.write_text(LINES)
    invoke("ingest", file, "--out", store, "--split", 0.05, "--threads", 1)
    small = ("--recipe", "paper", "--dim", 4, "--epochs", 1, "--device", "cpu")
    trained = invoke("train", store, *small, "--out", out)
    assert trained.code == 0, trained.stderr
    assert "No report" not in trained.stderr
    assert "No explorer" not in trained.stderr
    assert (out / "explorer.html").is_file()
    explored = invoke("explore", out, "--out", tmp_path / "s.html")
    assert explored.code == 0, explored.stderr
    assert '"entity 1"' in (tmp_path / "s.html").read_text(encoding="utf-8")


def test_facts_are_held_out_when_it_is_made_not_when_it_is_trained_on(tmp_path):
    file, store = tmp_path / "x.tsv", tmp_path / "store"
    file.write_text(LINES)
    invoke("ingest", file, "--out", store, "--threads", 1)
    for more in (["--out", tmp_path / "R"], ["--dry-run"]):
        said = complaint("train", store, "--split", 0.1, "--quiet", *more)
        assert "is on disk" in said
        assert said.endswith("use 'nscaching ingest ... --split 0.1'.")
    assert not (tmp_path / "R").exists()


def test_a_bad_line_is_named(tmp_path):
    file = tmp_path / "x.tsv"
    file.write_text("a\tb\tc\na b c\n")
    said = complaint("ingest", file, "--out", tmp_path / "store")
    assert f"Line 2 of {file} has 1 column" in said
    assert not (tmp_path / "store").exists()


def test_the_help_names_the_extra_that_has_duckdb():
    assert "'nscaching[large]'" in invoke("ingest", "--help").stdout
