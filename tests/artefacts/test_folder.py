"""Folders of ours: nothing of others is deleted, and a run is replaced whole or not at all."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

import nscaching as ns
from nscaching import UserError
from nscaching.artefacts import MARKER, FolderLock
from nscaching.nodes.embedding import NodeFolder
from nscaching.runs.checks import check_folder
from nscaching.training import RunFolder

from ..training.helpers import bits, go_on, kept_bits, ring, train

SETTINGS = {"epochs": 2, "dim": 4}


@pytest.fixture
def folder(tmp_path):
    train(ring(), out=tmp_path / "R", **SETTINGS)
    return tmp_path / "R"


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_marker_says_what_and_by_whom(folder):
    told = json.loads((folder / MARKER).read_text())
    assert (told["kind"], told["format"], told["version"]) == ("run", 1, ns.__version__)


def test_a_linked_checkpoint_folder_refuses_before_anything_is_lost(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (folder / "checkpoint").rename(tmp_path / "elsewhere" / "checkpoint")
    (folder / "checkpoint").symlink_to(tmp_path / "elsewhere" / "checkpoint")
    before, bits_before = listing(folder), kept_bits(folder)
    with pytest.raises(UserError, match=r"checkpoint is a link, so .* is left as it is"):
        train(ring(), out=folder, overwrite=True, **SETTINGS)
    assert listing(folder) == before
    assert kept_bits(folder) == bits_before
    assert ns.load_run(folder).graph.num_entities == 30


@pytest.mark.parametrize("name", ["model.safetensors", "report.html", "nscaching.json"])
def test_a_folder_in_the_place_of_a_file_refuses_before_anything_is_lost(folder, name):
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    (folder / name / "mine").write_text("mine")
    before = listing(folder)
    with pytest.raises(UserError, match=name):
        train(ring(), out=folder, overwrite=True, **SETTINGS)
    assert listing(folder) == before


def test_files_of_others_in_the_checkpoint_folder_stay(folder):
    (folder / "checkpoint" / "thesis.tex").write_text("mine")
    (folder / "checkpoint" / "more").mkdir()
    train(ring(), out=folder, overwrite=True, **SETTINGS)
    assert (folder / "checkpoint" / "thesis.tex").read_text() == "mine"
    assert (folder / "checkpoint" / "more").is_dir()


def test_what_a_linked_file_leads_to_stays(folder, tmp_path):
    (folder / "model.safetensors").rename(tmp_path / "precious")
    (folder / "model.safetensors").symlink_to(tmp_path / "precious")
    before = (tmp_path / "precious").read_bytes()
    train(ring(), out=folder, overwrite=True, **{**SETTINGS, "seed": 3})
    assert (tmp_path / "precious").read_bytes() == before
    assert not (folder / "model.safetensors").is_symlink()


def test_folders_of_others_named_like_temporary_ones_stay(folder):
    (folder / ".cache.tmp").mkdir()
    train(ring(), out=folder, resume=True, dim=4, epochs=3)
    assert (folder / ".cache.tmp").is_dir()


def test_another_kind_of_folder_is_not_taken_for_a_run(folder):
    told = json.loads((folder / MARKER).read_text())
    (folder / MARKER).write_text(json.dumps(told | {"kind": "search"}))
    with pytest.raises(UserError, match="something else"):
        ns.load_run(folder)
    with pytest.raises(UserError, match="is not a run folder"):
        train(ring(), out=folder, overwrite=True, **SETTINGS)
    assert (folder / "model.safetensors").exists()


def test_a_newer_format_is_refused_by_its_version(folder):
    told = json.loads((folder / MARKER).read_text())
    (folder / MARKER).write_text(json.dumps(told | {"format": 99, "version": "9.0.0"}))
    with pytest.raises(UserError, match=r"nscaching 9\.0\.0, a newer version"):
        ns.load_run(folder)
    (folder / MARKER).write_text(json.dumps(told | {"format": 99, "version": "\x1b" + "9" * 5000}))
    with pytest.raises(UserError, match="a newer version") as refused:
        ns.load_run(folder)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("changed", [{"nor\ufeffmalize": True}, {"dim": "\x1b" + "9" * 5000}])
def test_odd_names_and_values_of_a_marker_are_not_shown_as_they_are(folder, changed):
    told = json.loads((folder / MARKER).read_text())
    told["model"] |= changed
    (folder / MARKER).write_text(json.dumps(told))
    with pytest.raises(UserError, match=r"is damaged|Put that back") as refused:
        ns.load_run(folder)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


def test_a_folder_without_marker_is_one_of_the_first_version(folder):
    run = ns.load_run(folder)
    (folder / MARKER).unlink()
    assert bits(ns.load_run(folder)) == bits(run)
    train(ring(), out=folder, resume=True, dim=4, epochs=3)
    train(ring(), out=folder, overwrite=True, **SETTINGS)


class Killed(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize("moment", range(1, 40))
def test_a_replacement_killed_at_any_moment_leaves_the_old_run_or_the_new_one(
    tmp_path, monkeypatch, moment
):
    """Die before every call that changes the file system, and look without writing anything."""
    folder = tmp_path / "R"
    train(ring(entities=31), out=folder, **SETTINGS)
    calls = [0]

    def dying(original):
        def call(*args, **options):
            calls[0] += 1
            if calls[0] >= moment:
                raise Killed
            return original(*args, **options)

        return call

    for name in ("rename", "replace", "unlink", "mkdir", "rmdir"):
        monkeypatch.setattr(os, name, dying(getattr(os, name)))
    new = ns.TrainConfig(data="ring", **SETTINGS)
    try:
        RunFolder(folder).create(new, ring())
    except Killed:
        pass
    else:
        assert moment > 15
    monkeypatch.undo()
    (tmp_path / MARKER).write_text(json.dumps({"kind": "search", "format": 1}))
    assert check_folder(folder).whole
    assert check_folder(tmp_path).whole  # with the run as one of its trials
    found = RunFolder(folder)
    assert found.is_run()
    entities = found.read_graph().num_entities
    assert entities in (30, 31)
    if entities == 31:
        assert ns.load_run(folder).evaluate("test").count == 20
    resumed = go_on(folder)
    assert resumed.summary["epochs"] == 2
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("stage", [".nscaching-whole", ".nscaching-moving"])
@pytest.mark.parametrize("old", [True, False])
def test_a_replacement_by_another_kind_is_left_to_those_who_know_its_files(folder, stage, old):
    """A wrong command would take some of the old files away and leave others."""
    (folder / stage).mkdir()
    for file in [file for file in folder.iterdir() if file.is_file()]:
        if file.name in ("model.safetensors", MARKER):
            file.rename(folder / stage / file.name)
        elif not old:
            file.unlink()
    if not old:
        (folder / "checkpoint").rename(folder / stage / "checkpoint")
    told = json.loads((folder / stage / MARKER).read_text())
    (folder / stage / MARKER).write_text(json.dumps(told | {"kind": "nodes"}))
    before = listing(folder)
    with pytest.raises(UserError):
        ns.load_run(folder)
    assert listing(folder) == before
    with pytest.raises(UserError, match="is not a run folder"):
        train(ring(), out=folder, overwrite=True, **SETTINGS)
    assert listing(folder) == before
    NodeFolder(folder).recover()
    assert (folder / "model.safetensors").is_file()
    assert not (folder / stage).exists()


HOLD = """
import sys, pathlib, time
from nscaching.artefacts import FolderLock
FolderLock(pathlib.Path(sys.argv[1])).acquire()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "R")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_the_second_writer_is_told_who_holds_it(tmp_path, holder):
    with pytest.raises(UserError, match=f"is being written by process {holder.pid} since"):
        train(ring(), out=tmp_path / "R", epochs=1, dim=4)
    assert [path.name for path in (tmp_path / "R").iterdir()] == [".nscaching.lock"]


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "R" / ".nscaching.lock").exists()
    train(ring(), out=tmp_path / "R", epochs=1, dim=4)
    assert not (tmp_path / "R" / ".nscaching.lock").exists()


def test_two_writers_in_one_process_are_two(tmp_path):
    first, second = FolderLock(tmp_path), FolderLock(tmp_path)
    first.acquire()
    with pytest.raises(UserError, match=f"process {os.getpid()}"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", [None, "elsewhere"])
def test_a_process_of_the_same_number_on_another_host_is_another(tmp_path, host):
    first = FolderLock(tmp_path)
    first.acquire()
    held = {"pid": os.getpid(), "host": host or socket.gethostname()}
    first.file.write_text(json.dumps(held))
    assert FolderLock(tmp_path).is_free() == (host is None)
    first.release()


def test_who_asks_a_run_is_told_that_it_is_being_trained(folder):
    counters = RunFolder(folder).read_counters()
    lock = FolderLock(folder)
    assert lock.writer() is None
    lock.acquire()
    lock.file.write_text(json.dumps({"pid": 7, "host": "elsewhere"}))
    assert counters.finished
    assert ns.load_run(folder).unfinished is None
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="no model yet: process 7 on elsewhere is training it"):
        ns.load_run(folder)
    lock.release()


def test_folders_made_for_a_lock_go_with_it(tmp_path):
    lock = FolderLock(tmp_path / "a" / "b")
    lock.acquire()
    lock.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1]", b'{"pid": "x"}', b"[" * 100_000])
def test_a_damaged_lock_file_is_no_obstacle(tmp_path, content):
    (tmp_path / ".nscaching.lock").write_bytes(content)
    lock = FolderLock(tmp_path)
    assert lock.is_free()
    lock.acquire()
    lock.release()


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "R").mkdir()
    (tmp_path / "R" / ".nscaching.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError):
        FolderLock(tmp_path / "R").acquire()
    assert (tmp_path / "precious").read_text() == "mine"


def test_another_that_ends_badly_gives_the_lock_back(tmp_path):
    with pytest.raises(UserError):
        train(tmp_path / "nothing.tsv", out=tmp_path / "R", epochs=1)
    assert not (tmp_path / "R").exists()
    train(ring(), out=tmp_path / "R", epochs=1, dim=4)
