"""A process killed at any moment and resumed ends with the bits of one that never stopped."""

import os
import random
import signal
import subprocess
import time

import pytest

from .helpers import (
    ALL_STATE,
    finish,
    flags,
    kept_bits,
    ring,
    run_command,
    start,
    untimed_metrics,
    write_folder,
)

EPOCHS = 30
SETTINGS = {**ALL_STATE, "batch_size": 128, "epochs": EPOCHS, "valid_every": 3, "patience": 0}


class Reference:
    """A run that was never stopped, how long it took, and how to start it."""

    def __init__(self, folder):
        graph = ring(entities=300, relations=10, held_out=100)
        self.data = write_folder(graph, folder / "data")
        started = time.monotonic()
        code, _, stderr = run_command(*self.arguments(folder / "whole"))
        self.seconds = time.monotonic() - started
        assert code == 0, stderr
        self.bits = kept_bits(folder / "whole")
        self.metrics = untimed_metrics(folder / "whole")

    def arguments(self, out, *more):
        common = ["--checkpoint-seconds", 0, "--out", out, *more]
        return ["train", self.data, *flags(SETTINGS), *common]

    def assert_equal(self, out):
        assert kept_bits(out) == self.bits
        assert untimed_metrics(out) == self.metrics
        assert not list(out.rglob(".*")), "temporary files were left"


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return Reference(tmp_path_factory.mktemp("reference"))


def kill_after(process, seconds):
    """Kill a process so many seconds from now; tell whether it was still alive."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return True
    assert finish(process)[0] == 0
    return False


def wait_for(condition, process, seconds=60):
    """Wait until something is so, as long as the process lives."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.001)


def kill_until_done(reference, out, moments):
    """Kill and resume at each moment in turn, then resume to the end; return the kills."""
    kills = 0
    for moment in moments:
        kills += kill_after(start(*reference.arguments(out, "--resume")), moment)
    code, _, stderr = run_command(*reference.arguments(out, "--resume"))
    assert code == 0, stderr
    reference.assert_equal(out)
    return kills


def test_three_kills_change_no_bit(reference, tmp_path):
    out = tmp_path / "R"
    first = start(*reference.arguments(out))
    wait_for(out.exists, first)
    first.kill()  # while the folder is being made
    first.communicate()
    second = start(*reference.arguments(out, "--resume"))
    wait_for(lambda: len(untimed_metrics(out)) > 2, second)
    second.kill()  # among the first checkpoints
    second.communicate()
    third = start(*reference.arguments(out, "--resume"))
    seen = len(untimed_metrics(out))
    wait_for(lambda: len(untimed_metrics(out)) > seen + 9, third)
    third.kill()
    third.communicate()
    assert 0 < len(untimed_metrics(out)) < len(reference.metrics)
    code, _, stderr = run_command(*reference.arguments(out, "--resume"))
    assert code == 0, stderr
    reference.assert_equal(out)


@pytest.mark.slow
def test_twenty_random_kills_change_no_bit(reference, tmp_path):
    moments = random.Random(2)
    kills = runs = 0
    while kills < 20:
        # Most of the time a process takes is its start, which leaves nothing to break.
        drawn = [moments.uniform(0.4, 1.0) * reference.seconds for _ in range(4)]
        kills += kill_until_done(reference, tmp_path / f"R{runs}", drawn)
        runs += 1
    print(f"{kills} kills in {runs} runs")


def test_signals_write_a_checkpoint_and_say_how_to_resume(reference, tmp_path):
    out = tmp_path / "R"
    for number, more in ((signal.SIGINT, []), (signal.SIGTERM, ["--resume"])):
        process = start(*reference.arguments(out, "--checkpoint-seconds", 1000, *more))
        seen = len(untimed_metrics(out))
        wait_for(lambda seen=seen: len(untimed_metrics(out)) > seen + 3, process)
        os.kill(process.pid, number)
        code, stdout, stderr = finish(process)
        assert code == 130
        assert stdout == ""
        assert "Traceback" not in stderr
        assert number.name in stderr
        assert f"nscaching train --resume --out {out}" in stderr
        assert (out / "checkpoint" / "state.safetensors").exists()
    code, _, stderr = run_command("train", "--resume", "--out", out)
    assert code == 0, stderr
    reference.assert_equal(out)
