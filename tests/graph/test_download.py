import hashlib
import io
import lzma
import os
import struct
import tarfile
import zipfile

import pytest

from nscaching.graph import datasets
from nscaching.graph.datasets import DownloadError, Mirror, extract

from .server import serving

DATA = os.urandom(700_000)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def server():
    with serving() as running:
        running.files["/x"] = DATA
        yield running


def test_a_download_reports_progress_and_leaves_only_the_file(server, tmp_path):
    seen = []
    mirror = Mirror(server.url())
    assert mirror.fetch({"x": sha(DATA)}, tmp_path, lambda *told: seen.append(told)) == {}
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == DATA
    assert seen[-1] == (len(DATA), len(DATA), "x")
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


def failing(server, tmp_path, sha256):
    """Fetch over an old file; return the failure when the old file is all that is there."""
    (tmp_path / "x").write_bytes(b"old")
    failures = Mirror(server.url()).fetch({"x": sha256}, tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"
    return failures["x"]


def test_a_connection_that_ends_early_leaves_the_old_file(server, tmp_path):
    server.cut_after = 300_000
    assert "300000 bytes read" in failing(server, tmp_path, sha(DATA))
    server.cut_after = None
    assert Mirror(server.url()).fetch({"x": sha(DATA)}, tmp_path) == {}
    assert (tmp_path / "x").read_bytes() == DATA


def test_an_interruption_leaves_nothing(server, tmp_path):
    def interrupt(done, total, label):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Mirror(server.url()).fetch({"x": sha(DATA)}, tmp_path, interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_checksum_leaves_the_old_file(server, tmp_path):
    assert failing(server, tmp_path, sha(b"something else")) == "the checksum is wrong"


def test_a_missing_file_and_a_dead_server(server, tmp_path, monkeypatch):
    del server.files["/x"]
    assert "404" in failing(server, tmp_path, sha(DATA))
    monkeypatch.setattr(datasets, "TIMEOUT", 2)
    failures = Mirror("http://127.0.0.1:9").fetch({"x": sha(DATA)}, tmp_path)
    assert "refused" in failures["x"]


def test_other_names_and_positives(server, tmp_path):
    labelled = b"a\tr\tb\t1\na\tr\tc\t-1\n"
    server.files["/d/dev.tsv"] = labelled
    mirror = Mirror(
        server.url("/d"),
        names={"valid.labeled.txt": "dev.tsv"},
        positives_of={"valid.txt": "valid.labeled.txt"},
    )
    wanted = {"valid.txt": sha(b"a\tr\tb\n"), "valid.labeled.txt": sha(labelled)}
    assert mirror.fetch(wanted, tmp_path) == {}
    assert (tmp_path / "valid.txt").read_bytes() == b"a\tr\tb\n"


def tar_of(*members, kind="w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=kind) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_of(*members) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as zipped:
        for name, content in members:
            zipped.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize(("name", "pack"), [("g.tar.gz", tar_of), ("g.zip", zip_of)])
def test_an_archive(server, tmp_path, name, pack):
    server.files[f"/{name}"] = pack(("g/train-x.txt", b"a"), ("g/test.txt", b"b"), ("g/no", b"c"))
    wanted = {"train.txt": sha(b"a"), "test.txt": sha(b"wrong"), "valid.txt": sha(b"")}
    mirror = Mirror(server.url(f"/{name}"), names={"train.txt": "train-x.txt"})
    failures = mirror.fetch(wanted, tmp_path)
    assert failures == {"test.txt": "the checksum is wrong", "valid.txt": "not in the archive"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.txt"]
    assert (tmp_path / "train.txt").read_bytes() == b"a"


@pytest.mark.parametrize("evil", ["../evil", "/evil", "a/../../evil", "..\\evil", "C:\\evil"])
@pytest.mark.parametrize(("name", "pack"), [("g.tar.gz", tar_of), ("g.zip", zip_of)])
def test_an_archive_with_a_path_that_climbs_out_is_refused(tmp_path, evil, name, pack):
    folder = tmp_path / "inside"
    folder.mkdir()
    archive = folder / name
    archive.write_bytes(pack(("train.txt", b"a"), (evil, b"x")))
    with pytest.raises(DownloadError, match="unsafe"):
        extract(archive, {"train.txt": "train.txt", "evil": "evil"}, folder)
    assert not list(tmp_path.rglob("evil"))


def test_links_are_skipped(tmp_path):
    archive = tmp_path / "g.tar.gz"
    archive.write_bytes(tar_of(("train.txt", None), ("test.txt", b"a")))
    extract(archive, {"train.txt": "train", "test.txt": "test"}, tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"g.tar.gz", "test"}


PACKED = {
    "g.tar.gz": tar_of(("train.txt", DATA)),
    "g.tar.xz": tar_of(("train.txt", DATA), kind="w:xz"),
    "g.tar.bz2": tar_of(("train.txt", DATA), kind="w:bz2"),
    "g.zip": zip_of(("train.txt", DATA)),
}


@pytest.mark.parametrize("name", PACKED)
def test_a_damaged_archive(tmp_path, name):
    whole = PACKED[name]
    for data in (b"", b"nonsense", whole[: len(whole) // 2]):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DownloadError, match="not a whole archive"):
            extract(tmp_path / name, {"train.txt": "train.txt"}, tmp_path)


@pytest.mark.parametrize("name", PACKED)
def test_an_archive_with_changed_bytes_delivers_nothing(server, tmp_path, name):
    server.files[f"/{name}"] = PACKED[name][:3000] + b"x" * 40 + PACKED[name][3040:]
    failures = Mirror(server.url(f"/{name}")).fetch({"train.txt": sha(DATA)}, tmp_path)
    assert "checksum" in failures["train.txt"] or "not a whole" in failures["train.txt"]
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_lzma_archive_is_one_failure(server, tmp_path):
    server.files["/g.tar.xz"] = PACKED["g.tar.xz"][:-5000]
    failures = Mirror(server.url("/g.tar.xz")).fetch({"train.txt": sha(DATA)}, tmp_path)
    assert "not a whole archive" in failures["train.txt"]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(lzma.LZMAError):  # the oracle: this is what Python says of such a file
        lzma.decompress(b"\xfd7zXZ\x00" + b"x" * 40)


@pytest.mark.parametrize(("name", "pack"), [("g.tar.gz", tar_of), ("g.zip", zip_of)])
def test_an_archive_of_too_many_bytes_is_refused(tmp_path, monkeypatch, name, pack):
    monkeypatch.setattr(datasets, "LARGEST_MEMBER", 1000)
    (tmp_path / name).write_bytes(pack(("train.txt", b"0" * 1001)))
    with pytest.raises(DownloadError, match="unpacks to more than"):
        extract(tmp_path / name, {"train.txt": "train.txt"}, tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    monkeypatch.setattr(datasets, "LARGEST_ARCHIVE", 3000)
    (tmp_path / name).write_bytes(pack(*((f"file{i}", b"0" * 900) for i in range(4))))
    with pytest.raises(DownloadError, match="unpacks to more than"):
        extract(tmp_path / name, {"train.txt": "train.txt"}, tmp_path)


def test_a_zip_with_a_member_without_a_name_is_not_whole(tmp_path):
    data = zip_of(("x", b"a"))
    at = data.index(b"PK\x01\x02")
    directory = bytearray(data[at:])
    directory[28:30] = b"\0\0"  # the length of the name
    del directory[46]
    directory[-6:-2] = struct.pack("<L", at)
    directory[-10:-6] = struct.pack("<L", len(directory) - 22)
    (tmp_path / "g.zip").write_bytes(data[:at] + bytes(directory))
    with pytest.raises(IndexError):  # what zipfile says of it
        zipfile.ZipFile(tmp_path / "g.zip").infolist()[0].is_dir()
    with pytest.raises(DownloadError, match="not a whole archive"):
        extract(tmp_path / "g.zip", {"train.txt": "train.txt"}, tmp_path)


def test_a_member_that_declares_too_few_bytes_is_refused(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("train.txt", b"0" * 5_000_000)
    data = out.getvalue().replace(struct.pack("<L", 5_000_000), struct.pack("<L", 10))
    (tmp_path / "g.zip").write_bytes(data)
    with pytest.raises(DownloadError, match=r"g\.zip"):
        extract(tmp_path / "g.zip", {"train.txt": "train.txt"}, tmp_path)
    assert not (tmp_path / "train.txt").exists() or (tmp_path / "train.txt").stat().st_size <= 10
