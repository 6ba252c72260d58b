"""A process killed at any moment and resumed ends with the bits of one that never stopped."""

import os
import random
import signal
import time

import pytest

from .helpers import (
    ALL_STATE,
    SOFTMAX_STATE,
    finish,
    flags,
    kept_bits,
    ring,
    run_command,
    start,
    untimed_metrics,
    write_folder,
)

pytestmark = pytest.mark.slow
EPOCHS = 30
#: Random ones; benchmarks/reliability/kills.py has a thousand.
KILLS = 8
COMMON = {"batch_size": 128, "epochs": EPOCHS, "valid_every": 3, "patience": 0}
SETTINGS = {
    "paper": {**ALL_STATE, **COMMON, "schedule": "cosine"},
    "softmax": {**SOFTMAX_STATE, "sampler": "nscaching", **COMMON, "schedule": "linear"},
}


class Reference:
    """A run that was never stopped, how long it took, and how to start it."""

    def __init__(self, folder, settings):
        self.settings = settings
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
        return ["train", self.data, *flags(self.settings), *common]

    def assert_equal(self, out):
        assert kept_bits(out) == self.bits
        assert untimed_metrics(out) == self.metrics
        assert not list(out.rglob(".*")), "temporary files were left"


@pytest.fixture(scope="module", params=["paper", "softmax"])
def reference(request, tmp_path_factory):
    return Reference(tmp_path_factory.mktemp("reference"), SETTINGS[request.param])


def wait_for(condition, process, seconds=60):
    """Wait until something is so, as long as the process lives."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.001)


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


def test_eight_random_kills_change_no_bit(reference, tmp_path):
    """Kill at random moments: some while a process starts, most while it trains and writes."""
    moments = random.Random(2)
    kills = runs = 0
    while kills < KILLS:
        out = tmp_path / f"R{runs}"
        while True:
            process = start(*reference.arguments(out, "--resume"))
            if kills < KILLS:
                kills += kill_at(process, out, moments)
            if process.returncode is None:
                code, _, stderr = finish(process)
                assert code == 0, stderr
            if process.returncode == 0:
                break
        reference.assert_equal(out)
        runs += 1
    print(f"{kills} kills in {runs} runs")


def kill_at(process, out, moments):
    """Kill a process at a random moment; tell whether it was still alive."""
    if moments.random() < 0.2:
        time.sleep(moments.uniform(0, 2))
    else:
        before = len(untimed_metrics(out))
        more = moments.randrange(8)
        while process.poll() is None and len(untimed_metrics(out)) < before + more:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.05))
    if process.poll() is not None:
        return False
    process.kill()
    process.communicate()
    return True


def test_signals_write_a_checkpoint_and_say_how_to_resume(reference, tmp_path):
    out = tmp_path / "R"
    for number, more in ((signal.SIGINT, []), (signal.SIGTERM, ["--resume"])):
        process = start(*reference.arguments(out, "--checkpoint-seconds", 1000, *more))
        seen = len(untimed_metrics(out))
        wait_for(lambda seen=seen: len(untimed_metrics(out)) > seen + 3, process)
        os.kill(process.pid, number)
        code, stdout, stderr = finish(process)
        assert code == 128 + number
        assert stdout == ""
        assert "Traceback" not in stderr
        assert number.name in stderr
        assert f"nscaching train --resume --out {out}" in stderr
        assert (out / "checkpoint" / "state.safetensors").exists()
    code, _, stderr = run_command("train", "--resume", "--out", out)
    assert code == 0, stderr
    reference.assert_equal(out)
