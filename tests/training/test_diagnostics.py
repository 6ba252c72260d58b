"""Whatever happened to the diagnostic files, a model loads, answers, reports and resumes."""

import json
import shutil

import pytest

import nscaching as ns
from nscaching.training import RunFolder
from nscaching.training.diagnostics import seconds_without_compiling

from ..cli.helpers import invoke
from .helpers import bits, go_on, ring, train

DAMAGE = [
    b"\xff\xfe\x00\n",
    b"[" * 50_000 + b"\n",
    b'3\n[]\nnull\n"text"\n',
    b'{"event": "epoch", "epoch": "3", "loss": 1, "seconds": 1}\n',
    b'{"event": "epoch", "epoch": 3, "loss": "low", "seconds": 1}\n',
    b'{"event": "epoch", "epoch": 3}\n',
    b'{"event": 3, "epoch": 3}\n{"epoch": 3}\n{}\n',
    b'{"event": "evaluation", "epoch": 3, "split": "valid", "seconds": 1}\n',
    b'{"event": "evaluation", "epoch": 3, "split": 1, "seconds": 1, "mrr": 0.5}\n',
    b'{"event": "evaluation", "epoch": 3, "split": "valid", "seconds": 1, "mrr": {}}\n',
    b'{"event": "row", "epoch": 1, "row": "x", "hardest": [3], "random": []}\n',
    b'{"event": "gradients", "epoch": 1, "triple": "x", "side": "tail", "ccdf": [[1]]}\n',
    b'{"event": "epoch", "epoch": ' + b"9" * 5_000 + b"}\n",
]


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traced") / "R"
    train(ring(), out=folder, epochs=2, dim=4, trace=True, valid_every=1)
    return folder


@pytest.fixture
def folder(traced, tmp_path):
    shutil.copytree(traced, tmp_path / "R")
    return tmp_path / "R"


@pytest.mark.parametrize("damage", DAMAGE, ids=range(len(DAMAGE)))
@pytest.mark.parametrize("name", ["metrics.jsonl", "trace.jsonl"])
def test_damaged_lines_are_left_out(folder, name, damage):
    run = ns.load_run(folder)
    whole = RunFolder(folder).read_metrics(), RunFolder(folder).read_trace()
    (folder / name).write_bytes(damage + (folder / name).read_bytes() + damage)
    loaded = ns.load_run(folder)
    assert bits(loaded) == bits(run)
    assert loaded.summary == run.summary
    assert (RunFolder(folder).read_metrics(), RunFolder(folder).read_trace()) == whole


@pytest.mark.parametrize("name", ["metrics.jsonl", "trace.jsonl"])
def test_without_them_everything_works(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()  # not even a file
    assert ns.load_run(folder).evaluate("test").count == 20
    (folder / name).rmdir()
    (folder / name).write_bytes(bytes(range(256)) * 40)
    for command in (["trace", folder], ["report", folder], ["evaluate", folder]):
        outcome = invoke(*command)
        assert "Something went wrong" not in outcome.stderr, outcome
    assert go_on(folder, epochs=3).summary["epochs"] == 3
    assert all(json.loads(line) for line in (folder / name).read_text().splitlines())


def test_compiling_in_the_first_epoch_and_validation_is_left_out():
    def epoch(number, seconds):
        return {"event": "epoch", "epoch": number, "seconds": seconds}

    def validation(seconds, split="valid"):
        return {"event": "evaluation", "split": split, "seconds": seconds}

    lines = [epoch(1, 40.0), validation(7.0), epoch(2, 49.0), validation(1.0), epoch(3, 52.0)]
    lines += [validation(2.0), validation(99.0, "test")]
    assert seconds_without_compiling(lines) == (2 + 2 + 2) + (1.5 + 1 + 2)
    assert seconds_without_compiling(lines[:1]) == 40  # it may be an ordinary one
    fast = [epoch(1, 1.0), epoch(2, 5.0), epoch(3, 9.0)]
    assert seconds_without_compiling(fast) == 9
    assert seconds_without_compiling([]) == 0
