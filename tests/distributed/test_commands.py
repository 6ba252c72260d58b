"""Runs on several processes by the command line: as one process ends them, stopped or not."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from nscaching.runs.checks import check_folder

OPTIONS = ["world", "--recipe", "paper", "--dim", "8", "--device", "cpu", "--strata", "4"]
OPTIONS += ["--epochs", "6", "--valid-every", "3", "--checkpoint-seconds", "0", "--no-report"]


def started(*words):
    """Start ``nscaching train`` as a process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "nscaching", "train", *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def state(out):
    """Return all tensors of the model and the checkpoint, without its digests: of its name, too."""
    files = [*out.glob("model-*"), *out.glob("checkpoint/epoch-*/*")]
    found = {f"{file.name} {k}": t for file in files for k, t in load_file(file).items()}
    return {name: tensor for name, tensor in found.items() if not name.endswith("/digest")}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "one"
    run = started(*OPTIONS, "--out", out)
    assert run.wait(300) == 0, run.stderr.read()
    return state(out)


def assert_equal(mine, other):
    assert mine.keys() == other.keys()
    assert [name for name in mine if not torch.equal(mine[name], other[name])] == []


@pytest.mark.slow
def test_a_killed_rank_changes_nothing(unbroken, tmp_path):
    run = started(*OPTIONS, "--processes", 2, "--out", tmp_path / "run", "--json")
    while not (tmp_path / "run" / "checkpoint" / "latest.json").exists() and run.poll() is None:
        time.sleep(0.05)
    with open(f"/proc/{run.pid}/task/{run.pid}/children") as children:  # noqa: PTH123
        ranks = [int(word) for word in children.read().split()]
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    said, errors = run.communicate(timeout=300)
    assert run.returncode == 0, errors
    assert "A process was lost; resuming from the last checkpoint (1)." in errors
    assert said.count("\n") == 1  # rank 0 alone prints
    assert_equal(state(tmp_path / "run"), unbroken)
    assert check_folder(tmp_path / "run").whole


def epochs_saved(out):
    latest = out / "checkpoint" / "latest.json"
    return json.loads(latest.read_text())["epoch"] if latest.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(2,), (4, 2)])
def test_a_run_is_stopped_on_some_processes_and_ended_on_one(unbroken, tmp_path, counts):
    given = OPTIONS
    for count in counts:
        before = epochs_saved(tmp_path / "run")
        run = started(*given, "--processes", count, "--out", tmp_path / "run")
        while epochs_saved(tmp_path / "run") == before and run.poll() is None:
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=300)
        assert run.returncode == 130, errors
        assert errors.count("Stopped by SIGINT") == 1
        assert before < epochs_saved(tmp_path / "run") < 6
        assert check_folder(tmp_path / "run").whole
        given = ["--resume"]
    resumed = started("--resume", "--out", tmp_path / "run")
    assert resumed.wait(300) == 0, resumed.stderr.read()
    assert_equal(state(tmp_path / "run"), unbroken)
