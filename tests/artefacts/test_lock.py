"""One process writes a folder at a time, and a dead one holds nobody up."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

import nscaching as ns
from nscaching import UserError
from nscaching.artefacts import FolderLock
from nscaching.artefacts import lock as lock_module
from nscaching.training import RunFolder

from ..training.helpers import ring, train

SETTINGS = {"epochs": 2, "dim": 4}


@pytest.fixture
def folder(tmp_path):
    train(ring(), out=tmp_path / "R", **SETTINGS)
    return tmp_path / "R"


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


def test_who_looks_whether_a_folder_is_free_is_no_writer(tmp_path, monkeypatch):
    lock, tried = FolderLock(tmp_path), []

    def refused_once(handle):
        tried.append(handle)
        return len(tried) > 1 and try_lock(handle)  # the first time another process looks

    try_lock = lock_module._try_lock
    monkeypatch.setattr(lock_module, "_try_lock", refused_once)
    lock.acquire()
    assert len(tried) == 2
    lock.release()
