"""Two Dask workers on two hosts that are network namespaces; each trial is two processes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "large" / "tune_namespaces.py"


def _can_make_namespaces():
    if sys.platform != "linux" or os.geteuid() or shutil.which("ip") is None:
        return False
    name = "nscaching-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", name], check=True)
    return made


@pytest.mark.slow
@pytest.mark.skipif(not _can_make_namespaces(), reason="needs root and network namespaces")
def test_trials_of_two_processes_on_two_hosts_are_those_of_one_process(tmp_path):
    words = ["--trials", "4", "--out", tmp_path / "out.json"]
    subprocess.run([sys.executable, SCRIPT, *map(str, words)], check=True, timeout=900)
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["trials"] == 4
    assert told["same_trials_as_one_process"]
    assert told["most_processes_at_work"] == {"host-a": 2, "host-b": 2}
