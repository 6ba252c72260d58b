"""What is there is whole: writes are complete or not there, reads trust nothing."""

import errno
import os
import pickle
import stat

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from nscaching import UserError
from nscaching.artefacts.files import (
    read_tensors,
    read_text,
    sweep_temporary,
    write_atomically,
    write_tensors,
    write_text,
)
from nscaching.errors import CannotWrite


def listing(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_text_is_written_in_utf8_with_its_line_ends(tmp_path):
    write_text(tmp_path / "t.txt", "Zürich\r\n🏔\n")
    assert (tmp_path / "t.txt").read_bytes() == "Zürich\r\n🏔\n".encode()
    assert listing(tmp_path) == ["t.txt"]


def test_a_write_that_breaks_off_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "t.txt"
    write_text(path, "old")

    def half(temporary):
        temporary.write_text("ha")
        raise RuntimeError("broke off")

    with pytest.raises(RuntimeError):
        write_atomically(path, half)
    assert path.read_text() == "old"
    assert listing(tmp_path) == ["t.txt"]


def test_the_file_appears_only_when_it_is_whole(tmp_path):
    path = tmp_path / "t.txt"

    def watched(temporary):
        temporary.write_text("ha")
        assert not path.exists()
        assert temporary.parent.parent == tmp_path, "a rename must not cross file systems"
        temporary.write_text("half and half")

    write_atomically(path, watched)
    assert path.read_text() == "half and half"


def test_files_have_the_permissions_new_files_have(tmp_path):
    (tmp_path / "usual").touch()
    write_text(tmp_path / "ours", "")
    write_tensors(tmp_path / "tensors", {"a": torch.zeros(1)})
    usual = stat.S_IMODE((tmp_path / "usual").stat().st_mode)
    for name in ("ours", "tensors"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == usual


def test_a_full_disk_is_told_with_the_bytes(tmp_path, monkeypatch):
    def full(*given, **named):
        raise SafetensorError('Io Error(Os { code: 28, message: "No space left (os error 28)" })')

    monkeypatch.setattr("nscaching.artefacts.files.save_file", full)
    with pytest.raises(CannotWrite, match=r"4,000 bytes are needed and [0-9,]+ bytes are free in"):
        write_tensors(tmp_path / "t.safetensors", {"a": torch.zeros(1000)})
    assert listing(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "may not write"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_the_file_system_refuses_with_a_sentence(tmp_path, number, words):
    def refuse(temporary):
        raise OSError(number, os.strerror(number))

    with pytest.raises(UserError, match=words) as caught:
        write_atomically(tmp_path / "t.txt", refuse)
    assert str(tmp_path / "t.txt") in str(caught.value)
    assert listing(tmp_path) == []


def test_tensors_and_details_come_back(tmp_path):
    path = tmp_path / "t.safetensors"
    tensors = {
        "a": torch.arange(6).reshape(2, 3).t(),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(2.5),
        "bytes": torch.tensor([1, 255], dtype=torch.uint8),
    }
    write_tensors(path, tensors, {"epoch": 3, "best": None, "name": "Zürich 🏔"})
    found, details = read_tensors(path, "thing")
    assert details == {"epoch": 3, "best": None, "name": "Zürich 🏔"}
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)
        assert found[name].dtype == tensor.dtype


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="no thing here"):
        read_tensors(tmp_path / "none", "thing")


def test_what_is_not_whole_is_refused_at_every_length(tmp_path):
    path = tmp_path / "t.safetensors"
    write_tensors(path, {"a": torch.zeros(50)}, {"x": 1})
    whole = path.read_bytes()
    for length in (*range(0, len(whole), 7), len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="not a whole safetensors file"):
            read_tensors(path, "thing")


class Bomb:
    def __reduce__(self):
        return os.mkdir, (self.where,)


def test_a_pickle_is_refused_and_never_run(tmp_path):
    bomb = Bomb()
    bomb.where = str(tmp_path / "boom")
    path = tmp_path / "t.safetensors"
    for content in (pickle.dumps(bomb), pickle.dumps([1])):
        path.write_bytes(content)
        with pytest.raises(UserError, match=str(path)):
            read_tensors(path, "thing")
    torch.save(torch.zeros(3), path)
    with pytest.raises(UserError, match=str(path)):
        read_tensors(path, "thing")
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize("details", ["[]", "3", "no json", '"text"'])
def test_details_that_are_no_mapping_are_refused(tmp_path, details):
    save_file({"a": torch.zeros(1)}, tmp_path / "t", metadata={"details": details})
    with pytest.raises(UserError, match="not a whole safetensors file"):
        read_tensors(tmp_path / "t", "thing")


def test_only_leftovers_are_swept(tmp_path):
    (tmp_path / ".t.txt.ab12.tmp").mkdir()
    (tmp_path / ".t.txt.ab12.tmp" / ".inner").write_text("half")
    for name in ("kept.tmp", ".hidden", "t.txt"):
        (tmp_path / name).write_text("mine")
    sweep_temporary(tmp_path)
    assert listing(tmp_path) == [".hidden", "kept.tmp", "t.txt"]


def test_a_file_that_is_kept_from_the_user_is_not_called_damaged(tmp_path, monkeypatch):
    path = tmp_path / "tensors"
    write_tensors(path, {"a": torch.zeros(1)})
    monkeypatch.setattr(os, "access", lambda *given: False)  # tests may run as root
    with pytest.raises(UserError, match="tensors may not be read by you; change its permissions"):
        read_tensors(path, "model")

    def refused(self):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(type(path), "read_bytes", refused)
    with pytest.raises(UserError, match="tensors may not be read by you; change its permissions"):
        read_text(path)


def test_a_file_in_no_folder_is_refused_with_the_folder(tmp_path):
    with pytest.raises(UserError, match=r"^There is no folder .*nodir; make it first\.$"):
        write_text(tmp_path / "nodir" / "x.svg", "")
