"""Checkpoints of sharded runs: written in the background, whole or not there, checked when read."""

import errno
import json

import pytest
import torch

from nscaching.errors import CannotWrite, UserError
from nscaching.processes import ALONE, Group
from nscaching.training import sharded_checkpoint
from nscaching.training.checkpoint import Counters
from nscaching.training.sharded_checkpoint import Saver, check, load, read_latest

STRATA = 4


def parts(stratum: int, rows: int = 5):
    generator = torch.Generator().manual_seed(stratum)
    return {
        "model": {"entity": torch.randn(rows + stratum, 3, generator=generator)},
        "adam": {"mean": torch.randn(rows + stratum, 3, generator=generator)},
        "sampler": {
            "head_ids": torch.randint(-1, rows, (7, 2), generator=generator, dtype=torch.int32),
            "updating": torch.tensor(True),
            "rest": torch.zeros(0, 3),
        },
    }


SHARED = {"model": {"relation": torch.ones(2, 3)}, "epoch": {"order": torch.arange(6)}}


def saved(folder, epoch: int = 1, **changes):
    strata = {stratum: parts(stratum) for stratum in range(STRATA)} | changes.pop("strata", {})
    saver = Saver(folder, ALONE)
    saver.save(Counters("graph", epoch=epoch, **changes), SHARED, strata)
    saver.wait()
    return strata


def test_what_is_saved_is_read_back_stratum_by_stratum(tmp_path):
    strata = saved(tmp_path, epoch=3, steps_into_epoch=2)
    counters, shared, found = load(tmp_path, [1, 3])
    assert (counters.epoch, counters.steps_into_epoch, counters.fingerprint) == (3, 2, "graph")
    assert list(found) == [1, 3]
    for read, written in [(shared, SHARED), (found[1], strata[1]), (found[3], strata[3])]:
        assert read.keys() == written.keys()
        for part, group in written.items():
            for name, tensor in group.items():
                assert torch.equal(read[part][name], tensor), (part, name)
                assert read[part][name].dtype == tensor.dtype


def test_training_may_change_tensors_while_they_are_written(tmp_path):
    strata = {0: parts(0)}
    before = strata[0]["model"]["entity"].clone()
    saver = Saver(tmp_path, ALONE)
    saver.save(Counters("graph"), SHARED, strata)
    strata[0]["model"]["entity"].zero_()
    saver.wait()
    assert torch.equal(load(tmp_path, [0])[2][0]["model"]["entity"], before)


def test_only_the_last_one_stays_and_a_killed_one_is_swept(tmp_path):
    for epoch in range(3):
        saved(tmp_path, epoch)
    (folder,) = tmp_path.glob("epoch-*")
    assert read_latest(tmp_path)[1] == folder
    assert folder.name.startswith("epoch-2-")
    unfinished = tmp_path / ".latest.json.0123.tmp"
    unfinished.mkdir()
    (unfinished / "model-00001-of-00005.safetensors").write_bytes(b"half")
    renamed = tmp_path / "epoch-3-0123abcd"  # killed before the marker was replaced
    renamed.mkdir()
    (renamed / "model-00001-of-00005.safetensors").write_bytes(b"whole, but never named")
    assert load(tmp_path, [0])[0].epoch == 2
    sharded_checkpoint.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([folder.name, "latest.json"])


def test_files_of_others_are_not_removed(tmp_path):
    saved(tmp_path, 0)
    (old,) = tmp_path.glob("epoch-0-*")
    (old / "notes.txt").write_text("mine")
    saved(tmp_path, 1)
    assert [path.name for path in old.iterdir()] == ["notes.txt"]


def test_a_flipped_byte_is_noticed(tmp_path):
    saved(tmp_path)
    (file,) = tmp_path.glob("epoch-*/model-00003-of-*.safetensors")  # of stratum 1
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    assert load(tmp_path, [0, 2])[0].epoch == 1
    with pytest.raises(UserError, match="digest"):
        load(tmp_path, [1])
    file.write_bytes(bytes(content[:-9]))
    with pytest.raises(UserError, match="damaged"):
        load(tmp_path, [1])
    file.unlink()
    with pytest.raises(UserError, match="damaged"):
        load(tmp_path, [1])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("head_ids", torch.tensor([[5]], dtype=torch.int32), "not one of the 5 entities"),
        ("mean", torch.tensor([[torch.nan]]), "NaN"),
    ],
)
def test_numbers_that_no_run_writes_are_refused(tmp_path, name, value, words):
    wrong = parts(0)
    group = "adam" if name == "mean" else "sampler"
    wrong[group][name] = value
    saved(tmp_path, strata={0: wrong})
    with pytest.raises(UserError, match=words):
        load(tmp_path, [0])


def test_a_changed_marker_is_refused(tmp_path):
    saved(tmp_path)
    told = json.loads((tmp_path / "latest.json").read_text())
    (tmp_path / "latest.json").write_text(json.dumps({**told, "epoch": 7}))
    with pytest.raises(UserError, match="damaged"):
        read_latest(tmp_path)


def test_a_write_that_fails_is_told_and_leaves_the_last_one(tmp_path):
    saved(tmp_path, 1)
    saver = Saver(tmp_path, ALONE)
    (tmp_path / "latest.json").rename(tmp_path / "kept")
    (tmp_path / "latest.json").mkdir()  # nothing can be renamed to it
    saver.save(Counters("graph", epoch=2), SHARED, {0: parts(0)})
    with pytest.raises(CannotWrite):
        saver.wait()
    (tmp_path / "latest.json").rmdir()
    (tmp_path / "kept").rename(tmp_path / "latest.json")
    assert load(tmp_path, [0])[0].epoch == 1


def test_a_full_disk_is_not_kept_full_by_half_a_checkpoint(tmp_path, monkeypatch):
    from nscaching.training import sharded_storage

    saved(tmp_path, 1)

    def full(*given, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sharded_storage._Writer, "finish", full)
    with pytest.raises(CannotWrite, match=r"the disk is full: .* bytes are free"):
        saved(tmp_path, 2)
    (folder,) = tmp_path.glob("epoch-*")
    assert {file.name for file in tmp_path.iterdir()} == {"latest.json", folder.name}
    assert load(tmp_path, [0])[0].epoch == 1


def test_other_ranks_write_no_shared_tensors(tmp_path):
    """A rank knows its own strata only; of one group each file is written once."""
    saver = Saver(tmp_path, Group(rank=1, size=1))
    saver.save(Counters("graph"), SHARED, {2: parts(2), 3: parts(3)})
    saver.wait()
    names = sorted(file.name[:11] for file in tmp_path.glob("epoch-*/*"))
    assert names == ["model-00004", "model-00005"]


def test_copies_and_links_of_users_stay(tmp_path):
    saved(tmp_path, 1)
    (ours,) = tmp_path.glob("epoch-*")
    elsewhere = tmp_path.parent / "elsewhere"
    kept = [tmp_path / f"{ours.name}-backup", tmp_path / "epoch-1-mine", elsewhere]
    for folder in kept:
        folder.mkdir()
        (folder / "model-00001-of-00005.safetensors").write_bytes(b"theirs")
    (tmp_path / "epoch-9-0123abcd").symlink_to(elsewhere)
    saved(tmp_path, 2)
    assert not ours.exists()
    assert all((folder / "model-00001-of-00005.safetensors").exists() for folder in kept)


def test_a_stratum_of_another_checkpoint_is_refused(tmp_path):
    """It is whole in itself, and of the same epoch."""
    for name in "ab":
        saved(tmp_path / name)
    (mine,), (other,) = ((tmp_path / name).glob("epoch-*") for name in "ab")
    shard = "model-00003-of-00005.safetensors"
    (mine / shard).write_bytes((other / shard).read_bytes())
    assert load(tmp_path / "a", [0, 2, 3])
    with pytest.raises(UserError, match="'stratum/1' does not have the digest"):
        load(tmp_path / "a", [1])


def test_a_check_misses_the_last_file_and_not_a_copy_beside_it(tmp_path):
    saved(tmp_path, 3)
    (tensors,) = tmp_path.glob("epoch-*")
    last = tensors / "model-00005-of-00005.safetensors"
    copy = tensors / "model-00005-of-00005 (copy).safetensors"
    copy.write_bytes(last.read_bytes())
    assert check(tmp_path).epoch == 3
    copy.unlink()
    for file in (last, *tensors.iterdir()):
        file.unlink(missing_ok=True)
        with pytest.raises(UserError, match="damaged"):
            check(tmp_path)
