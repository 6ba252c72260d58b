"""SIGINT and SIGTERM at chosen moments, in this process: what is kept, what is said."""

import contextlib
import os
import shutil
import signal

import pytest
from typer.testing import CliRunner

import nscaching as ns
from nscaching import TrainingInterrupted
from nscaching.cli.main import app
from nscaching.sampling import SAMPLERS
from nscaching.training import Trainer, checkpoint, loop
from nscaching.training.step import TrainingStep
from nscaching.training.validation import Validation

from .helpers import (
    ALL_STATE,
    SOFTMAX_STATE,
    bits,
    go_on,
    kept_bits,
    ring,
    train,
    untimed_metrics,
    write_folder,
)

SETTINGS = {**ALL_STATE, "epochs": 6, "valid_every": 2, "batch_size": 8}
STEPS = 9  # an epoch: 70 training triples


@pytest.fixture(autouse=True)
def _listening():
    """Listen to SIGINT: a process that a shell started in the background is told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def signal_at(monkeypatch, owner, name, call, number=signal.SIGINT):
    """Send this process a signal at a call of a method."""
    original, calls = getattr(owner, name), []

    def watched(*args, **options):
        calls.append(1)
        if len(calls) == call:
            os.kill(os.getpid(), number)
        return original(*args, **options)

    monkeypatch.setattr(owner, name, watched)


def stopped(monkeypatch, folder, **options):
    """Train until the signal that was set up comes; return what is said."""
    with pytest.raises(TrainingInterrupted) as caught:
        train(ring(), out=folder, **{**SETTINGS, **options})
    monkeypatch.undo()
    return str(caught.value)


@pytest.fixture
def whole(tmp_path):
    return train(ring(), out=tmp_path / "whole", **SETTINGS)


def assert_same(tmp_path, folder):
    assert kept_bits(folder) == kept_bits(tmp_path / "whole")
    assert untimed_metrics(folder) == untimed_metrics(tmp_path / "whole")


@pytest.mark.parametrize("sampler", ["all", "uniform", "nscaching"])
@pytest.mark.parametrize("step", [1, STEPS + 4, 5 * STEPS])
def test_a_run_with_the_softmax_loss_stopped_within_an_epoch_resumes_to_the_same_bits(
    tmp_path, monkeypatch, sampler, step
):
    settings = {**SOFTMAX_STATE, "sampler": sampler, "epochs": 6, "valid_every": 2, "batch_size": 8}
    whole = train(ring(), out=tmp_path / "whole", **settings)
    folder = tmp_path / "R"
    signal_at(monkeypatch, TrainingStep, "__call__", step)
    with pytest.raises(TrainingInterrupted):
        train(ring(), out=folder, **settings)
    monkeypatch.undo()
    counters, _ = checkpoint.load(folder / "checkpoint" / "state.safetensors")
    assert counters.epoch * STEPS + counters.steps_into_epoch == step
    assert bits(go_on(folder)) == bits(whole)
    assert_same(tmp_path, folder)


@pytest.mark.parametrize("sampler", ["uniform", "self-adversarial", "kbgan", "igan", "nscaching"])
def test_dropout_stopped_within_an_epoch_resumes_to_the_same_bits(tmp_path, monkeypatch, sampler):
    settings = {"sampler": sampler, "dropout": 0.2, "generator_dim": 4, "batch_size": 8}
    whole = train(ring(), out=tmp_path / "whole", **settings)
    signal_at(monkeypatch, TrainingStep, "__call__", STEPS + 4)
    with pytest.raises(TrainingInterrupted):
        train(ring(), out=tmp_path / "R", **settings)
    monkeypatch.undo()
    assert bits(go_on(tmp_path / "R")) == bits(whole)
    assert_same(tmp_path, tmp_path / "R")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [1, STEPS - 1, STEPS, STEPS + 1, 2 * STEPS + 5, 6 * STEPS])
def test_a_stop_in_the_middle_of_an_epoch_changes_no_bit(
    tmp_path, monkeypatch, whole, step, number
):
    folder = tmp_path / "R"
    signal_at(monkeypatch, TrainingStep, "__call__", step, number)
    said = stopped(monkeypatch, folder)
    assert signal.Signals(number).name in said
    assert f"nscaching train --resume --out {folder}" in said
    counters, parts = checkpoint.load(folder / "checkpoint" / "state.safetensors")
    assert counters.epoch * STEPS + counters.steps_into_epoch == step
    assert ("epoch" in parts) == (counters.steps_into_epoch > 0)
    go_on(folder)
    assert_same(tmp_path, folder)


def test_a_stop_during_validation_changes_no_bit(tmp_path, monkeypatch, whole):
    signal_at(monkeypatch, Validation, "rank", 1)
    said = stopped(monkeypatch, tmp_path / "R")
    assert "--resume" in said
    go_on(tmp_path / "R")
    assert_same(tmp_path, tmp_path / "R")


def test_a_stop_during_the_last_validation_is_a_stop(tmp_path, monkeypatch, whole):
    signal_at(monkeypatch, Validation, "rank", 3)
    assert "--resume" in stopped(monkeypatch, tmp_path / "R")
    go_on(tmp_path / "R")
    assert_same(tmp_path, tmp_path / "R")


@pytest.mark.parametrize("lazy", [1, 2])
def test_a_stop_in_an_epoch_without_updates_changes_no_bit(tmp_path, monkeypatch, lazy):
    train(ring(), out=tmp_path / "whole", lazy=lazy, **SETTINGS)
    signal_at(monkeypatch, TrainingStep, "__call__", STEPS + 3)
    stopped(monkeypatch, tmp_path / "R", lazy=lazy)
    go_on(tmp_path / "R")
    assert_same(tmp_path, tmp_path / "R")


@pytest.mark.parametrize("pretrain_epochs", [0, 2])
def test_a_stop_in_the_warm_start_keeps_the_pretraining_and_does_the_warm_start_again(
    tmp_path, monkeypatch, pretrain_epochs
):
    options = {"sampler": "kbgan", "pretrain_epochs": pretrain_epochs, "generator_epochs": 3}
    train(ring(), out=tmp_path / "whole", **{**SETTINGS, **options})
    signal_at(monkeypatch, TrainingStep, "__call__", (pretrain_epochs + 1) * STEPS + 5)
    said = stopped(monkeypatch, tmp_path / "R", **options)
    assert f"in the generator's warm start after epoch {pretrain_epochs} of 6" in said
    assert f"nscaching train --resume --out {tmp_path / 'R'}" in said
    counters, _ = checkpoint.load(tmp_path / "R" / "checkpoint" / "state.safetensors")
    assert (counters.epoch, counters.pretraining) == (pretrain_epochs, True)
    go_on(tmp_path / "R")
    assert_same(tmp_path, tmp_path / "R")


def test_a_kill_in_the_warm_start_finds_the_pretraining_kept(tmp_path, monkeypatch):
    options = {**SETTINGS, "sampler": "kbgan", "pretrain_epochs": 2}
    train(ring(), out=tmp_path / "whole", **options)

    def killed(*args, **given):
        raise SystemExit

    monkeypatch.setattr(SAMPLERS["kbgan"], "warm_start", killed)
    with pytest.raises(SystemExit):
        train(ring(), out=tmp_path / "R", **options)
    monkeypatch.undo()
    counters, _ = checkpoint.load(tmp_path / "R" / "checkpoint" / "state.safetensors")
    assert (counters.epoch, counters.pretraining) == (2, True)
    go_on(tmp_path / "R")
    assert_same(tmp_path, tmp_path / "R")


def test_without_a_folder_nothing_is_promised(monkeypatch):
    signal_at(monkeypatch, TrainingStep, "__call__", 3)
    with pytest.raises(TrainingInterrupted, match="nothing was kept"):
        train(ring(), **SETTINGS)


def test_the_handlers_are_put_back(tmp_path, monkeypatch):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    signal_at(monkeypatch, TrainingStep, "__call__", 3)
    stopped(monkeypatch, tmp_path / "R")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_second_signal_insists_and_the_old_checkpoint_stays(tmp_path, monkeypatch, whole):
    folder = tmp_path / "R"
    original, saves = checkpoint.save, []

    def save(*args):
        saves.append(1)
        if len(saves) == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        original(*args)

    monkeypatch.setattr(checkpoint, "save", save)
    with pytest.raises(KeyboardInterrupt):
        train(ring(), out=folder, checkpoint_seconds=0, **SETTINGS)
    monkeypatch.undo()
    assert checkpoint.load(folder / "checkpoint" / "state.safetensors")[0].epoch == 2
    resumed = go_on(folder)
    assert bits(resumed) == bits(whole)


# The command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("owner", "name"), [(SAMPLERS["nscaching"], "prepare"), (ns.Run, "evaluate")]
)
def test_a_stop_outside_the_epochs_says_how_to_go_on(tmp_path, monkeypatch, owner, name, number):
    data = write_folder(ring(), tmp_path / "data")
    folder = tmp_path / "R"
    arguments = ["train", str(data), "--epochs", "2", "--dim", "4", "--out", str(folder), "--quiet"]
    signal_at(monkeypatch, owner, name, 1, number)
    result = CliRunner().invoke(app, arguments)
    monkeypatch.undo()
    assert result.exit_code == 128 + number
    assert f"nscaching train --resume --out {folder}" in result.stderr
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    again = CliRunner().invoke(app, ["train", "--resume", "--out", str(folder), "--quiet"])
    assert again.exit_code == 0
    assert ns.load_run(folder).evaluate("test").count == 20


def test_a_request_to_stop_is_no_exception_that_a_script_swallows(monkeypatch):
    assert not issubclass(TrainingInterrupted, Exception)
    signal_at(monkeypatch, TrainingStep, "__call__", 3)
    with pytest.raises(KeyboardInterrupt), contextlib.suppress(Exception):
        train(ring(), **SETTINGS)


def test_a_closed_terminal_saves_as_sigterm_does(tmp_path, monkeypatch, whole):
    signal_at(monkeypatch, TrainingStep, "__call__", STEPS + 2, signal.SIGHUP)
    assert "--resume" in stopped(monkeypatch, tmp_path / "R")
    go_on(tmp_path / "R")
    assert_same(tmp_path, tmp_path / "R")


def test_nohup_is_respected(tmp_path, monkeypatch, whole):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signal_at(monkeypatch, TrainingStep, "__call__", STEPS + 2, signal.SIGHUP)
        train(ring(), out=tmp_path / "R", **SETTINGS)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert_same(tmp_path, tmp_path / "R")


@pytest.mark.parametrize("within", [False, True])
def test_a_run_from_another_kind_of_device_goes_on_and_says_so(
    tmp_path, monkeypatch, capsys, within
):
    folder = tmp_path / "R"
    moment = (TrainingStep, "__call__", 2 * STEPS + 3) if within else (Trainer, "_report_epoch", 2)
    signal_at(monkeypatch, *moment)
    stopped(monkeypatch, folder)
    state = folder / "checkpoint" / "state.safetensors"
    counters, parts = checkpoint.load(state)
    assert ("epoch" in parts) == within
    parts["random"]["state"] = parts["random"]["state"][:16]  # as long as a GPU's
    checkpoint.save(state, counters, parts)
    again = shutil.copytree(folder, tmp_path / "again")
    first, second = (ns.train(out=f, resume=True, progress="lines") for f in (folder, again))
    assert "another kind of device" in capsys.readouterr().err
    assert bits(first) == bits(second)
    assert first.summary["epochs"] == SETTINGS["epochs"]


def test_seconds_of_an_epoch_that_was_interrupted_count(tmp_path, monkeypatch):
    signal_at(monkeypatch, TrainingStep, "__call__", 2 * STEPS + 3)
    with monkeypatch.context() as patch:
        now = [0.0]
        step = TrainingStep.__call__
        patch.setattr(loop.time, "monotonic", lambda: now[0])

        def slow(self, batch, *given):
            now[0] += 1
            return step(self, batch, *given)

        patch.setattr(TrainingStep, "__call__", slow)
        stopped(patch, tmp_path / "R", max_seconds=100)
    counters = checkpoint.load(tmp_path / "R" / "checkpoint" / "state.safetensors")[0]
    assert counters.epoch_seconds == 2 * STEPS + 3
    resumed = ns.train(out=tmp_path / "R", resume=True, max_seconds=21.0001, progress="none")
    assert resumed.summary["epochs"] == 3  # the one that had begun is ended
