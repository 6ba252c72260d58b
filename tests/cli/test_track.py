"""``train --track``, and what is said of a wrong one."""

import csv

from .helpers import complaint, invoke


def test_track_may_be_given_several_times(tmp_path, data):
    files = [tmp_path / "one.csv", tmp_path / "two.csv"]
    flags = [flag for file in files for flag in ("--track", f"csv:{file}")]
    outcome = invoke(
        "train", data, "--out", tmp_path / "R", "--epochs", 2, "--dim", 4, "--json", *flags
    )
    assert outcome.code == 0, outcome.stderr
    for file in files:
        assert {row["split"] for row in csv.DictReader(file.open())} == {"train", "valid", "test"}


def test_a_wrong_tracker_is_refused_before_anything_is_written(tmp_path, data):
    said = complaint("train", data, "--out", tmp_path / "R", "--track", "tensorbord:x")
    assert "did you mean 'tensorboard'" in said
    assert not (tmp_path / "R").exists()


def test_a_run_that_is_resumed_keeps_its_trackers_unless_none_is_named(tmp_path, data):
    file, out = tmp_path / "curve.csv", ("--out", tmp_path / "R", "--dim", 4, "--json")
    assert invoke("train", data, *out, "--epochs", 1, "--track", f"csv:{file}").code == 0
    assert invoke("train", "--resume", *out, "--epochs", 2).code == 0
    before = file.read_text()
    assert "2,train,loss" in before
    assert invoke("train", "--resume", *out, "--epochs", 3, "--track", "none").code == 0
    assert file.read_text() == before
