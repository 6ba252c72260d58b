"""``report``, and the page that ``train`` writes."""

import json

import pytest

from ..report.reading import read
from .helpers import complaint, invoke

SMALL = ["--epochs", 1, "--dim", 4, "--device", "cpu"]


def test_train_writes_a_page_and_says_where(data, tmp_path):
    out = tmp_path / "R"
    outcome = invoke("train", data, *SMALL, "--out", out)
    assert outcome.code == 0, outcome.stderr
    assert f"Report: {out / 'report.html'}" in outcome.stdout
    words = read((out / "report.html").read_text(encoding="utf-8")).words
    assert "SimplE with NSCaching on ring" in words
    assert "Trained for 1 epoch in" in words
    assert " on cpu." in words


def test_no_report_writes_none(data, tmp_path):
    out = tmp_path / "R"
    outcome = invoke("train", data, *SMALL, "--out", out, "--no-report", "--json", "--quiet")
    assert json.loads(outcome.stdout)["report"] is None
    assert not (out / "report.html").exists()


def test_report_json_is_the_path_and_the_bytes(run):
    outcome = invoke("report", run, "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.count("\n") == 1
    value = json.loads(outcome.stdout)
    assert value["path"] == str(run / "report.html")
    assert value["bytes"] == (run / "report.html").stat().st_size
    (run / "report.html").unlink()


def test_report_goes_where_it_is_told(run, tmp_path):
    outcome = invoke("report", run, "--out", tmp_path / "page.html", "--quiet")
    assert outcome.code == 0, outcome.stderr
    assert str(tmp_path / "page.html") in outcome.stdout
    assert outcome.stderr == ""
    read((tmp_path / "page.html").read_text(encoding="utf-8"))
    again = invoke("report", run, "--out", tmp_path / "page.html", "--quiet")
    assert again.code == 0, again.stderr


def test_neither_page_nor_explorer_of_the_users_own_is_written_over(run, tmp_path):
    for name in ("page.html", "page-explorer.html"):
        own = tmp_path / name
        own.write_text("<!doctype html>\n<html><title>mine</title></html>")
        said = complaint("report", run, "--out", tmp_path / "page.html")
        assert said.startswith(f"{own} exists and is not a page of nscaching;")
        assert [file.name for file in tmp_path.iterdir()] == [name]
        own.unlink()


def test_what_is_no_run_is_named(tmp_path):
    said = complaint("report", tmp_path)
    assert str(tmp_path) in said
    assert "is not a run folder" in said
    assert "is not there" in complaint("report", tmp_path / "nothing")


def test_a_report_that_fails_does_not_fail_the_training(data, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no map today")

    monkeypatch.setattr("nscaching.report.run_page.entity_map", broken)
    outcome = invoke("train", data, *SMALL, "--out", tmp_path / "R", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.stdout)["report"] is None
    assert "No report: no map today" in outcome.stderr
    assert (tmp_path / "R" / "model.safetensors").exists()


def test_an_explorer_that_fails_does_not_fail_the_report(data, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no terms today")

    monkeypatch.setattr("nscaching.report.explorer.packed_calibration", broken)
    outcome = invoke("train", data, *SMALL, "--out", tmp_path / "R")
    assert "No explorer: no terms today" in outcome.stderr
    assert "No report" not in outcome.stderr
    assert f"Report: {tmp_path / 'R' / 'report.html'}" in outcome.stdout


def test_a_page_in_no_folder_is_refused_before_the_work(tmp_path):
    for command in ("report", "explore"):
        said = complaint(command, tmp_path / "no run", "--out", tmp_path / "nodir" / "page.html")
        assert said == f"There is no folder {tmp_path / 'nodir'}; make it first."


@pytest.mark.parametrize("command", ["compare", "tune"])
def test_compare_and_tune_write_pages_too(data, tmp_path, command):
    if command == "tune":
        pytest.importorskip("smac")
    own = ["--samplers", "uniform"] if command == "compare" else ["--trials", 2]
    outcome = invoke(command, data, *own, *SMALL, "--out", tmp_path / "X", "--json", "--quiet")
    assert outcome.code == 0, outcome.stderr
    assert json.loads(outcome.stdout)["report"].endswith("report.html")
    read((tmp_path / "X" / "report.html").read_text(encoding="utf-8"))
