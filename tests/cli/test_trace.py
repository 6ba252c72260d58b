"""``nscaching trace``: of a run, of data that is trained first, and its refusals."""

import json

import pytest

from nscaching.artefacts import FolderLock

from ..training.helpers import ring, train
from .helpers import complaint, invoke

ROW, TRIPLE = "e3|r1|?", "e3|r1|e5"


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "T"
    options = {"trace_row": [ROW, "?|r0|e9"], "trace_triple": [TRIPLE], "trace_every": 2}
    train(ring(), out=folder, epochs=4, valid_every=0, **options)
    return folder


def test_json_is_the_trace(traced):
    outcome = invoke("trace", traced, "--json", "--row", ROW)
    shown = json.loads(outcome.stdout)
    assert outcome.code == 0
    assert [line["epoch"] for line in shown["epochs"]] == [1, 2, 3, 4]
    assert {line["row"] for line in shown["rows"]} == {ROW}
    assert [line["epoch"] for line in shown["rows"]] == [0, 2, 4]
    assert {line["triple"] for line in shown["gradients"]} == {TRIPLE}


def test_the_tables_show_rows_by_name(traced):
    outcome = invoke("trace", traced)
    shown = json.loads(invoke("trace", traced, "--json").stdout)
    assert "Cache row e3|r1|?" in outcome.stdout
    assert "Cache row ?|r0|e9" in outcome.stdout
    for entity in shown["rows"][-1]["random"]:
        assert entity in outcome.stdout


def test_data_is_trained_first(data, tmp_path):
    out = tmp_path / "R"
    options = ["--dim", 4, "--epochs", 2, "--valid-every", 0, "--out", out, "--quiet"]
    outcome = invoke("trace", data, "--row", ROW, "--row", "?|r0|e9", *options, "--json")
    shown = json.loads(outcome.stdout)
    assert shown["run"] == str(out)
    assert [line["epoch"] for line in shown["epochs"]] == [1, 2]
    assert [line["row"] for line in shown["rows"]] == [ROW, "?|r0|e9"] * 3
    assert invoke("trace", out).code == 0
    assert "holds a run already" in complaint("trace", data, *options)


def test_a_folder_that_is_being_written_is_left_alone(data, tmp_path):
    lock = FolderLock(tmp_path / "R")
    lock.acquire()
    told = ["--dim", 4, "--epochs", 1, "--out", tmp_path / "R", "--quiet"]
    assert "is being written by" in complaint("trace", data, *told)
    lock.release()
    assert not (tmp_path / "R").exists()


def test_train_takes_several_rows(data, tmp_path):
    out = tmp_path / "R"
    rows = ["--trace-row", ROW, "--trace-row", "?|r0|e9"]
    small = ["--dim", 4, "--epochs", 1, "--quiet", "--out", out]
    assert invoke("train", data, *small, *rows).code == 0
    assert invoke("train", "--resume", "--out", out, "--epochs", 2, "--quiet").code == 0
    shown = json.loads(invoke("trace", out, "--json").stdout)
    assert {line["row"] for line in shown["rows"]} == {ROW, "?|r0|e9"}


def test_a_picture_is_drawn(traced, tmp_path):
    picture = tmp_path / "trace.svg"
    assert invoke("trace", traced, "--plot", picture).code == 0
    drawn = picture.read_text()
    assert drawn.startswith("<svg")
    assert "Negatives with non-zero loss" in drawn
    assert "end trace.png in .svg" in complaint("trace", traced, "--plot", tmp_path / "trace.png")


def test_what_cannot_be_shown_is_refused(traced, run):
    assert "trained without a trace" in complaint("trace", run)
    assert "has no row 'e1|r1|?', it has e3|r1|?" in complaint("trace", traced, "--row", "e1|r1|?")
    assert "has no triple" in complaint("trace", traced, "--triple", "e1|r1|e2")
    assert "is a run already, so dim cannot" in complaint("trace", traced, "--dim", 4)
    ignored = ("--out", traced.with_name("other"), "--overwrite")
    assert "is a run already, so out, overwrite cannot" in complaint("trace", traced, *ignored)
