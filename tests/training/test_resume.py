"""Going on: what may change, what may not, and what a broken write leaves."""

import contextlib
import errno
import os
import shutil
from pathlib import Path

import pytest
import yaml
from safetensors.torch import save_file

import nscaching as ns
from nscaching import UserError
from nscaching.training import RunFolder, checkpoint
from nscaching.training.step import TrainingStep

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

SETTINGS = {**ALL_STATE, "valid_every": 2}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "R"


def test_a_finished_run_goes_on_with_more_epochs(tmp_path, folder):
    train(ring(), out=folder, epochs=4, **SETTINGS)
    longer = train(ring(), out=folder, epochs=8, resume=True, **SETTINGS)
    whole = train(ring(), out=tmp_path / "whole", epochs=8, **SETTINGS)
    assert longer.summary["epochs"] == 8
    assert bits(longer) == bits(whole)
    assert kept_bits(folder) == kept_bits(tmp_path / "whole")
    assert untimed_metrics(folder) == untimed_metrics(tmp_path / "whole")


@pytest.mark.parametrize("sampler", ["all", "uniform", "nscaching"])
def test_a_run_with_the_softmax_loss_resumes_to_the_same_bits(tmp_path, folder, sampler):
    options = {**SOFTMAX_STATE, "sampler": sampler, "valid_every": 2}
    train(ring(), out=folder, epochs=4, **options)
    longer = go_on(folder, epochs=6)
    whole = train(ring(), out=tmp_path / "whole", epochs=6, **options)
    assert bits(longer) == bits(whole)
    assert kept_bits(folder) == kept_bits(tmp_path / "whole")
    assert untimed_metrics(folder) == untimed_metrics(tmp_path / "whole")


@pytest.mark.parametrize("optimizer", ["adam", "lazy-adam", "adagrad"])
@pytest.mark.parametrize("sampler", ["uniform", "nscaching"])
def test_every_optimiser_resumes_to_the_same_bits_with_dropout(
    tmp_path, folder, optimizer, sampler
):
    options = {"optimizer": optimizer, "dropout": 0.2, "sampler": sampler, "valid_every": 0}
    train(ring(), out=folder, epochs=2, **options)
    longer = go_on(folder, epochs=4)
    whole = train(ring(), out=tmp_path / "whole", epochs=4, **options)
    assert bits(longer) == bits(whole)
    assert kept_bits(folder) == kept_bits(tmp_path / "whole")
    assert bits(whole) != bits(train(ring(), epochs=4, **{**options, "dropout": 0.0}))


class Stopped(Exception):
    """Ends a run in the middle of an epoch."""


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("optimizer", ["adam", "lazy-adam", "adagrad"])
def test_a_schedule_resumes_to_the_same_bits(tmp_path, folder, monkeypatch, schedule, optimizer):
    """Stopped anywhere: the rate follows from the step, not from what has been done since."""
    options = {"optimizer": optimizer, "schedule": schedule, "epochs": 5, "valid_every": 2}
    whole = train(ring(), out=tmp_path / "whole", **options)
    original, steps = TrainingStep.__call__, []

    def call(self, *given):
        steps.append(1)
        if len(steps) == 13:  # of 25: in the third epoch, after two checkpoints
            raise Stopped
        return original(self, *given)

    monkeypatch.setattr(TrainingStep, "__call__", call)
    with pytest.raises(Stopped):
        train(ring(), out=folder, checkpoint_seconds=0, **options)
    monkeypatch.undo()
    resumed = go_on(folder)
    assert bits(resumed) == bits(whole)
    assert kept_bits(folder) == kept_bits(tmp_path / "whole")
    assert bits(whole) != bits(train(ring(), **{**options, "schedule": "constant"}))


def test_the_last_steps_of_a_schedule_are_the_smallest(monkeypatch):
    factors = []
    original = TrainingStep.__call__

    def call(self, *given):
        factors.append(self.optimizer.lr_factor)
        return original(self, *given)

    monkeypatch.setattr(TrainingStep, "__call__", call)
    train(ring(), schedule="linear", epochs=4)
    assert factors == pytest.approx([1 - step / 20 for step in range(20)])


def test_the_configuration_kept_repeats_the_prolonged_run(tmp_path, folder):
    train(ring(), out=folder, epochs=2, **SETTINGS)
    longer = go_on(folder, epochs=6)
    assert yaml.safe_load((folder / "config.yaml").read_text())["epochs"] == 6
    again = train(ring(), config=folder / "config.yaml", dim=16, epochs=6, batch_size=16)
    assert bits(again) == bits(longer)


def test_resuming_a_finished_run_changes_nothing(folder):
    train(ring(), out=folder, epochs=4, **SETTINGS)
    before, metrics = kept_bits(folder), untimed_metrics(folder)
    run = train(ring(), out=folder, epochs=4, resume=True, **SETTINGS)
    assert run.summary["epochs"] == 4
    assert kept_bits(folder) == before
    assert untimed_metrics(folder) == metrics


@pytest.mark.parametrize("less", [{"epochs": 2}, {"max_seconds": 1e-6}])
def test_less_than_is_done_is_nothing_to_do(folder, capsys, less):
    train(ring(), out=folder, epochs=4, **SETTINGS)
    before, config = kept_bits(folder), (folder / "config.yaml").read_text()
    run = ns.train(out=folder, resume=True, progress="lines", **less)
    assert f"Nothing to do: {folder} has 4 epochs already" in capsys.readouterr().err
    assert run.summary["epochs"] == 4
    assert kept_bits(folder) == before
    assert (folder / "config.yaml").read_text() == config


@pytest.mark.parametrize("less", [{"epochs": 1}, {"max_seconds": 1e-6}])
def test_less_than_is_done_of_an_unfinished_run_is_refused(folder, monkeypatch, less):
    """It would pass for a finished one: nothing would say that it can be resumed."""
    original, steps = TrainingStep.__call__, []

    def call(self, *given):
        steps.append(1)
        if len(steps) == 13:
            raise Stopped
        return original(self, *given)

    monkeypatch.setattr(TrainingStep, "__call__", call)
    with pytest.raises(Stopped):
        train(ring(), out=folder, checkpoint_seconds=0, **{**SETTINGS, "epochs": 5})
    monkeypatch.undo()
    before, unfinished = kept_bits(folder), ns.load_run(folder).unfinished
    with pytest.raises(UserError, match=r"has 2 epochs of 5 already, .* and is not finished\."):
        go_on(folder, **less)
    assert kept_bits(folder) == before
    assert ns.load_run(folder).unfinished == unfinished is not None
    assert go_on(folder).summary["epochs"] == 5


def test_a_run_stopped_by_patience_stays_stopped_and_says_so(folder, capsys):
    options = {**SETTINGS, "valid_every": 1, "patience": 1, "lr": 1e-9, "epochs": 50}
    first = train(ring(), out=folder, **options)
    assert first.summary["epochs"] < 50
    again = train(ring(), out=folder, resume=True, **options)
    assert again.summary["epochs"] == first.summary["epochs"]
    capsys.readouterr()
    ns.train(out=folder, resume=True, epochs=60, progress="lines")
    said = f"Nothing to do: {folder} stopped early after {first.summary['epochs']} epochs, "
    assert f"{said}1 validation without a gain." in capsys.readouterr().err
    assert ns.load_run(folder).config.epochs == 50


def test_a_run_without_a_folder_cannot_be_resumed():
    with pytest.raises(UserError, match="Name the run to resume with --out"):
        train(ring(), resume=True)


def test_resume_where_there_is_nothing_begins(folder):
    run = train(ring(), out=folder, resume=True, **SETTINGS)
    assert run.summary["epochs"] == 2


def test_resume_before_the_first_checkpoint_begins_again(tmp_path, folder):
    train(ring(), out=folder, epochs=4, **SETTINGS)
    (folder / "checkpoint" / "state.safetensors").unlink()
    (folder / "model.safetensors").unlink()
    go_on(folder)
    train(ring(), out=tmp_path / "whole", epochs=4, **SETTINGS)
    assert kept_bits(folder) == kept_bits(tmp_path / "whole")
    assert untimed_metrics(folder) == untimed_metrics(tmp_path / "whole")


def test_a_model_without_its_checkpoint_is_not_replaced(folder):
    train(ring(), out=folder, epochs=4, **SETTINGS)
    (folder / "checkpoint" / "state.safetensors").unlink()
    model = (folder / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match=r"state.safetensors is missing.*--overwrite"):
        go_on(folder, epochs=6)
    assert (folder / "model.safetensors").read_bytes() == model
    again = train(ring(), out=folder, epochs=6, overwrite=True, **SETTINGS)
    assert again.summary["epochs"] == 6


@pytest.mark.parametrize("broken", ["state.safetensors", "model.safetensors"])
def test_a_first_checkpoint_that_is_half_written_does_no_harm(
    tmp_path, folder, monkeypatch, broken
):
    fail_replacing(monkeypatch, broken, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(UserError, match="disk is full"):
        train(ring(), out=folder, epochs=4, **SETTINGS)
    monkeypatch.undo()
    go_on(folder)
    train(ring(), out=tmp_path / "whole", epochs=4, **SETTINGS)
    assert kept_bits(folder) == kept_bits(tmp_path / "whole")


def test_a_folder_without_a_run_is_named(tmp_path, folder, capsys):
    with pytest.raises(UserError, match=f"There is no run in {folder} to resume"):
        go_on(folder)
    train(ring(), out=folder, resume=True, **{**SETTINGS, "progress": "lines"})
    assert f"There is no run in {folder} yet, so one is begun" in capsys.readouterr().err


def test_to_resume_and_to_overwrite_is_a_contradiction(folder):
    train(ring(), out=folder, **SETTINGS)
    before = kept_bits(folder)
    for verb in (ns.train, ns.compare, ns.tune):
        with pytest.raises(UserError, match="one of the two"):
            verb(ring(), out=folder, resume=True, overwrite=True, progress="none")
    assert kept_bits(folder) == before


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 9},
        {"lr": 0.5},
        {"seed": 1},
        {"sampler": "uniform"},
        {"valid_every": 1},
        {"select": "hits@1"},
        {"schedule": "linear"},
    ],
)
def test_another_configuration_is_refused(folder, change):
    train(ring(), out=folder, **SETTINGS)
    before = kept_bits(folder)
    (name,) = change
    with pytest.raises(UserError, match=f"was started with {name} ") as caught:
        train(ring(), out=folder, resume=True, **{**SETTINGS, **change})
    assert str(folder) in str(caught.value)
    assert kept_bits(folder) == before


def test_a_run_that_named_its_split_is_resumed_by_a_configuration_that_leaves_it_open(folder):
    """Until a share was left open every configuration said split 0.05."""
    begun = ns.TrainConfig(**SETTINGS, epochs=2)
    ns.train(ring(), out=folder, config=begun, progress="none")
    config = RunFolder(folder).config
    config.write_text(config.read_text().replace("split: null", "split: 0.05"))
    longer = ns.TrainConfig(**SETTINGS, epochs=4)
    run = ns.train(ring(), out=folder, resume=True, config=longer, progress="none")
    assert (run.summary["epochs"], run.config.split) == (4, 0.05)


def test_another_graph_is_refused_however_it_is_named(tmp_path, folder):
    train(ring(), out=folder, **SETTINGS)
    before = kept_bits(folder)
    other = ring(entities=31)
    data = write_folder(other, tmp_path / "other")
    config = tmp_path / "c.yaml"
    config.write_text(f"data: {data}\n")
    for options in ({"graph": other}, {"graph": data}, {"graph": None, "config": config}):
        with pytest.raises(UserError, match="another graph"):
            train(out=folder, resume=True, **{**SETTINGS, **options})
    assert kept_bits(folder) == before


def test_the_same_triples_under_another_name_are_the_same_graph(tmp_path, folder):
    train(ring(), out=folder, epochs=2, **SETTINGS)
    graph = ring()
    graph.name = "renamed"
    assert train(graph, out=folder, epochs=3, resume=True, **SETTINGS).summary["epochs"] == 3


def test_where_and_how_often_may_change(folder):
    train(ring(), out=folder, epochs=2, **SETTINGS)
    options = {**SETTINGS, "device": "auto", "checkpoint_seconds": 0, "eval_memory": 7}
    assert train(ring(), out=folder, epochs=3, resume=True, **options).summary["epochs"] == 3


# Broken writes ------------------------------------------------------------------------------------


def fail_replacing(monkeypatch, name, error):
    """Let a rename onto files of this name fail."""
    original = Path.replace

    def replace(self, target):
        if Path(target).name == name:
            raise error
        return original(self, target)

    monkeypatch.setattr(Path, "replace", replace)


@pytest.mark.parametrize("broken", ["state.safetensors", "model.safetensors"])
def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path, folder, monkeypatch, broken):
    train(ring(), out=folder, epochs=2, **SETTINGS)
    fail_replacing(monkeypatch, broken, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(UserError, match="disk is full"):
        train(ring(), out=folder, epochs=6, resume=True, **SETTINGS)
    monkeypatch.undo()
    counters, _ = checkpoint.load(folder / "checkpoint" / "state.safetensors")
    assert counters.epoch == 2
    assert not list(folder.rglob("*.tmp"))
    ns.load_run(folder)
    train(ring(), out=folder, epochs=6, resume=True, **SETTINGS)
    train(ring(), out=tmp_path / "whole", epochs=6, **SETTINGS)
    assert kept_bits(folder) == kept_bits(tmp_path / "whole")


def test_what_a_kill_left_half_written_is_ignored_and_removed(folder):
    train(ring(), out=folder, epochs=2, **SETTINGS)
    leftovers = [
        folder / "checkpoint" / ".state.safetensors.ab12.tmp",
        folder / ".model.safetensors.cd34.tmp",
    ]
    for leftover in leftovers:
        leftover.mkdir()
        (leftover / "half").write_bytes(b"half")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"event": "epoch", "epo')
    run = train(ring(), out=folder, epochs=3, resume=True, **SETTINGS)
    assert run.summary["epochs"] == 3
    assert not list(folder.rglob("*.tmp"))
    assert [line["epoch"] for line in untimed_metrics(folder) if line["event"] == "epoch"] == [
        1,
        2,
        3,
    ]


@pytest.mark.parametrize("content", [b"", b"text\n", b"\x80\x04N.", b"\x08\0\0\0\0\0\0\0{}      "])
def test_a_foreign_checkpoint_is_refused_by_name(folder, content):
    train(ring(), out=folder, **SETTINGS)
    state = folder / "checkpoint" / "state.safetensors"
    state.write_bytes(content)
    with pytest.raises(UserError, match=str(state)):
        train(ring(), out=folder, epochs=9, resume=True, **SETTINGS)
    assert state.read_bytes() == content


@pytest.mark.parametrize("details", [None, "[]", "no json", '{"format": 99}', '{"format": 1}'])
def test_a_checkpoint_with_other_details_is_refused_by_name(folder, details):
    train(ring(), out=folder, **SETTINGS)
    state = folder / "checkpoint" / "state.safetensors"
    tensors = checkpoint.load(state)[1]["model"]
    save_file(tensors, state, metadata=None if details is None else {"details": details})
    with pytest.raises(UserError, match=str(state)):
        train(ring(), out=folder, epochs=9, resume=True, **SETTINGS)


def test_a_truncated_checkpoint_is_refused_by_name(folder):
    train(ring(), out=folder, **SETTINGS)
    state = folder / "checkpoint" / "state.safetensors"
    whole = state.read_bytes()
    for size in (4, 100, len(whole) - 1):
        state.write_bytes(whole[:size])
        with pytest.raises(UserError, match=str(state)):
            train(ring(), out=folder, epochs=9, resume=True, **SETTINGS)


# Making and replacing the folder ------------------------------------------------------------------


def config_and_graph():
    return ns.TrainConfig(data="ring", batch_size=16, epochs=3, **SETTINGS), ring()


@pytest.mark.parametrize(
    "broken", ["entities.txt", "graph.safetensors", "config.yaml", "metrics.jsonl"]
)
def test_a_folder_that_cannot_be_made_is_not_left_half_made(folder, monkeypatch, broken):
    fail_replacing(monkeypatch, broken, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(UserError, match="disk is full"):
        RunFolder(folder).create(*config_and_graph())
    assert not folder.exists()


def test_overwriting_that_fails_leaves_the_old_run(folder, monkeypatch):
    train(ring(), out=folder, **SETTINGS)
    before = kept_bits(folder)
    fail_replacing(monkeypatch, "graph.safetensors", OSError(errno.ENOSPC, "full"))
    with pytest.raises(UserError, match="disk is full"):
        train(ring(entities=40), out=folder, overwrite=True, **SETTINGS)
    assert kept_bits(folder) == before
    assert ns.load_run(folder).graph.num_entities == 30


class Killed(BaseException):
    """Stands for kill -9: nothing below the call is run any more."""


@pytest.mark.slow
@pytest.mark.parametrize("earlier", [False, True])
def test_a_start_killed_at_any_call_can_be_made_again(tmp_path, monkeypatch, earlier):
    """Stop before every rename, unlink and mkdir in turn, with no clean-up, as a kill would."""
    whole = train(ring(), out=tmp_path / "whole", epochs=3, **SETTINGS)
    train(ring(entities=31), out=tmp_path / "old", **SETTINGS)
    for moment in range(1, 99):
        folder = tmp_path / f"R{moment}"
        if earlier:
            shutil.copytree(tmp_path / "old", folder)
        calls = die_at_call(monkeypatch, moment)
        with contextlib.suppress(Killed):
            RunFolder(folder).create(*config_and_graph())
        monkeypatch.undo()
        if calls[0] < moment:
            assert moment > 8
            return
        flag = {"overwrite": True} if earlier else {"resume": True}
        again = train(ring(), out=folder, epochs=3, **flag, **SETTINGS)
        assert bits(again) == bits(whole)
        assert not list(folder.glob(".*"))


def die_at_call(monkeypatch, moment):
    """Raise Killed at the given file system call and at every later one."""
    calls = [0]

    def dying(original):
        def call(*args, **options):
            calls[0] += 1
            if calls[0] >= moment:
                raise Killed
            return original(*args, **options)

        return call

    for name in ("replace", "unlink", "mkdir", "rmdir"):
        monkeypatch.setattr(Path, name, dying(getattr(Path, name)))
    monkeypatch.setattr(shutil, "rmtree", dying(shutil.rmtree))
    return calls


def test_a_folder_with_other_things_is_never_overwritten(folder):
    for name in ("config.yaml", "model.safetensors", "entities.txt", "notes.md", ".hidden"):
        folder.mkdir()
        (folder / name).write_text("mine")
        for options in ({}, {"overwrite": True}, {"resume": True}):
            with pytest.raises(UserError, match="is not a run folder"):
                train(ring(), out=folder, **options)
        assert (folder / name).read_text() == "mine"
        (folder / name).unlink()
        folder.rmdir()


def test_overwriting_keeps_what_is_not_of_the_run(folder):
    train(ring(), out=folder, **SETTINGS)
    (folder / "notes.md").write_text("mine")
    (folder / "report.html").write_text("of the old run")
    train(ring(), out=folder, overwrite=True, **{**SETTINGS, "dim": 4})
    assert (folder / "notes.md").read_text() == "mine"
    assert not (folder / "report.html").exists()
    assert ns.load_run(folder).embeddings().shape == (30, 4)


def test_an_empty_folder_may_be_filled(folder):
    folder.mkdir()
    assert train(ring(), out=folder).summary["epochs"] == 2
