"""A share of the campaigns in ``benchmarks/reliability``: kills, full disks, damage."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "reliability"


def campaign(script, *options):
    """Run a campaign; return its counts."""
    command = [sys.executable, str(SCRIPTS / script), *map(str, options)]
    one = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    path = os.pathsep.join(part for part in sys.path if part)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **one, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_a_killed_command_is_resumed_to_the_same_bits():
    counts = campaign("kills.py", "--kills", 2, "--workers", 1, "--cases", "update", "--seed", 3)
    assert counts["kills"] >= 2
    assert counts["failures"] == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits on files are those of Linux")
def test_a_disk_that_fills_up_leaves_everything_whole():
    counts = campaign("disk_full.py", "--points", 1)
    assert counts["total"]["refused"] > 1
    assert counts["failures"] == []


@pytest.mark.slow
def test_of_two_trainings_into_one_folder_one_is_refused():
    assert campaign("two_writers.py", "--pairs", 1)["pairs"] == 1


@pytest.mark.slow
def test_a_damaged_file_of_any_folder_is_refused_or_does_not_matter(tmp_path):
    told = campaign("fuzz_folders.py", "--count", 120, "--seed", 3, "--out", tmp_path / "told.json")
    assert told["failures"] == []
    assert sum(told["total"].values()) == 120
    assert {name.split("/")[0] for name in told["files"]} >= {"run", "nodes", "reproduction"}
    assert json.loads((tmp_path / "told.json").read_text())["total"] == told["total"]


def test_kills_compare_results_and_not_how_long_they_took(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import kills

    for folder, wall, token, mrr in (("a", 5.1, "0" * 8, 0.5), ("b", 61.5, "f" * 8, 0.5)):
        tensors = tmp_path / folder / "checkpoint" / f"epoch-3-{token}"
        tensors.mkdir(parents=True)
        (tensors / "x.txt").write_text("x")
        told = {
            "rows": [{"mrr": mrr, "wall": wall, "train_seconds": wall}],
            "tensors": tensors.name,
        }
        (tmp_path / folder / "table-7.json").write_text(json.dumps(told))
    found, expected = (kills.content(tmp_path / folder) for folder in "ab")
    assert kills.difference(found, expected) is None
    expected["table-7.json"]["rows"][0]["mrr"] = 0.4
    assert kills.difference(found, expected) == (
        "table-7.json differs: rows: 0: mrr: 0.5 in place of 0.4"
    )
