"""``nscaching reproduce``: the list, JSON, the plan, the page, mistakes."""

import json

import pytest

from nscaching.experiments.paper.results import Results

from .helpers import complaint, invoke

SMALL = ["--dataset", "WN18RR", "--scoring", "simple", "--mode", "scratch", "--sampler",
         "bernoulli", "--on", "shape/400", "--budget", 1, "--device", "cpu"]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("reproduce") / "R"
    outcome = invoke("reproduce", "table-7", *SMALL, "--out", out, "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.count("\n") == 1
    return out, json.loads(outcome.stdout), outcome.stderr


def test_the_list_names_tables_and_figures():
    items = json.loads(invoke("reproduce", "--list", "--json").stdout)["items"]
    assert {"name", "title", "label"} <= set(items[0])
    assert [item["name"] for item in items][:2] == ["table-7", "table-8"]
    shown = invoke("reproduce", "--list").stdout
    assert "figure-14" in shown
    assert "tb-perf" in shown


def test_json_has_the_plan_the_rows_and_the_file(made):
    out, values, said = made
    assert values["name"] == "table-7"
    assert [row["test"].keys() >= {"mrr", "hits@10"} for row in values["rows"]] == [True]
    assert values["plan"][0]["state"] == "waiting"
    assert Results(out).rows == values["rows"]
    assert "1 cell, 0 of them done" in said  # said in advance, and how long
    assert "about" in said


def test_a_table_with_the_papers_numbers(made):
    shown = invoke("reproduce", "table-7", *SMALL, "--out", made[0], "--quiet").stdout
    assert "(0.4256)" in shown
    assert "WN18RR simple bernoulli" in shown


def test_a_dry_run_says_how_long(tmp_path):
    outcome = invoke("reproduce", "table-7", *SMALL, "--out", tmp_path / "no", "--dry-run")
    assert "in all (rough: no cell was timed on this machine yet)." in outcome.stdout
    assert not (tmp_path / "no").exists()


def test_the_page(made, tmp_path):
    page = tmp_path / "page.md"
    assert invoke("reproduce", "--report", made[0], "--out", page).code == 0
    assert page.read_text().startswith("# The paper, reproduced")


def test_mistakes_are_one_sentence(tmp_path):
    assert "did you mean" in complaint("reproduce", "tabel-7")
    assert "--list" in complaint("reproduce")
    assert "no scoring 'simpel'" in complaint("reproduce", "table-7", "--scoring", "simpel")
    assert "whole numbers" in complaint("reproduce", "table-7", "--seeds", "a")
    assert "shape/100" in complaint("reproduce", "table-7", "--on", "shape/x")


def test_what_failed_is_said_once(tmp_path, monkeypatch):
    from nscaching.experiments.paper import making as sources

    def nowhere(name):
        raise sources.UserError(f"{name} is nowhere.")

    monkeypatch.setattr(sources, "load_graph", nowhere)
    monkeypatch.setattr(sources, "find_dataset", lambda name: None)
    outcome = invoke("reproduce", "table-7", "--dataset", "YAGO3-10", "--scoring", "complex",
                     "--sampler", "nscaching", "--out", tmp_path, "--quiet")  # fmt: skip
    assert outcome.code == 1
    assert outcome.stdout.count("YAGO3-10 is nowhere.") == 1
    assert outcome.stdout.count("no data") == 2
    planned = invoke(
        "reproduce", "table-7", "--dataset", "YAGO3-10", "--dry-run", "--out", tmp_path
    )
    assert "Nothing can be run" in planned.stdout
    assert "in all" not in planned.stdout
