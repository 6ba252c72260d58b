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
