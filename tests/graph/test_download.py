import hashlib
import io
import os
import tarfile
import zipfile

import pytest

from nscaching.graph.archives import BadArchiveError, extract
from nscaching.graph.download import ChecksumError, DownloadError, download_file
from nscaching.graph.mirrors import Archive, PlainFiles

from .server import serving

DATA = os.urandom(700_000)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def server():
    with serving() as running:
        running.files["/x"] = DATA
        yield running


def test_a_download_reports_progress_and_leaves_no_part(server, tmp_path):
    seen = []
    target = tmp_path / "x"
    download_file(server.url("/x"), target, sha(DATA), progress=lambda *a: seen.append(a))
    assert target.read_bytes() == DATA
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
    assert seen[-1] == (len(DATA), len(DATA), "x")
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


def test_a_cut_connection_is_resumed(server, tmp_path):
    target = tmp_path / "x"
    server.cut_after = 300_000
    with pytest.raises(DownloadError, match="300,000 of 700,000"):
        download_file(server.url("/x"), target, sha(DATA))
    assert not target.exists()
    assert (tmp_path / "x.part").stat().st_size == 300_000
    server.cut_after = None
    download_file(server.url("/x"), target, sha(DATA))
    assert target.read_bytes() == DATA
    assert server.asked[-1] == ("/x", "bytes=300000-")


def test_an_interruption_leaves_the_part(server, tmp_path):
    def interrupt(done, total, label):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download_file(server.url("/x"), tmp_path / "x", sha(DATA), progress=interrupt)
    assert 0 < (tmp_path / "x.part").stat().st_size < len(DATA)
    download_file(server.url("/x"), tmp_path / "x", sha(DATA))
    assert server.asked[-1][1] is not None
    assert (tmp_path / "x").read_bytes() == DATA


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.ranges = False
    (tmp_path / "x.part").write_bytes(DATA[:1000])
    download_file(server.url("/x"), tmp_path / "x", sha(DATA))
    assert (tmp_path / "x").read_bytes() == DATA


def test_a_complete_part_only_needs_its_name(server, tmp_path):
    (tmp_path / "x.part").write_bytes(DATA)
    download_file(server.url("/x"), tmp_path / "x", sha(DATA))
    assert (tmp_path / "x").read_bytes() == DATA


@pytest.mark.parametrize("left", [b"other bytes", b"y" * 800_000])
def test_a_wrong_part_is_fetched_again_from_the_start(server, tmp_path, left):
    (tmp_path / "x.part").write_bytes(left)
    download_file(server.url("/x"), tmp_path / "x", sha(DATA))
    assert (tmp_path / "x").read_bytes() == DATA
    assert server.asked[-1] == ("/x", None)


def test_a_wrong_checksum_deletes_the_part_and_keeps_the_old_file(server, tmp_path):
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(ChecksumError):
        download_file(server.url("/x"), tmp_path / "x", sha(b"something else"))
    assert (tmp_path / "x").read_bytes() == b"old"
    assert not (tmp_path / "x.part").exists()


def test_a_missing_file_and_a_dead_server(server, tmp_path):
    with pytest.raises(DownloadError, match="404"):
        download_file(server.url("/absent"), tmp_path / "x")
    with pytest.raises(DownloadError):
        download_file("http://127.0.0.1:9/x", tmp_path / "x", timeout=2)


def test_other_names_and_positives(server, tmp_path):
    labelled = b"a\tr\tb\t1\na\tr\tc\t-1\n"
    server.files["/d/dev.tsv"] = labelled
    mirror = PlainFiles(
        server.url("/d"),
        names={"valid.labeled.txt": "dev.tsv"},
        positives_of={"valid.txt": "valid.labeled.txt"},
    )
    wanted = {"valid.txt": sha(b"a\tr\tb\n"), "valid.labeled.txt": sha(labelled)}
    assert mirror.fetch(wanted, tmp_path, None) == {}
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
    mirror = Archive(server.url(f"/{name}"), names={"train.txt": "train-x.txt"})
    failures = mirror.fetch(wanted, tmp_path, None)
    assert failures == {"test.txt": "the checksum is wrong", "valid.txt": "not in the archive"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.txt"]
    assert (tmp_path / "train.txt").read_bytes() == b"a"


@pytest.mark.parametrize("evil", ["../evil", "/evil", "a/../../evil", "..\\evil", "C:\\evil"])
@pytest.mark.parametrize(("name", "pack"), [("g.tar.gz", tar_of), ("g.zip", zip_of)])
def test_a_path_that_climbs_out_condemns_the_archive(tmp_path, evil, name, pack):
    folder = tmp_path / "inside"
    folder.mkdir()
    archive = folder / name
    archive.write_bytes(pack(("train.txt", b"a"), (evil, b"x")))
    with pytest.raises(BadArchiveError, match="unsafe"):
        extract(archive, ["train.txt", "evil"], folder)
    assert [entry.name for entry in tmp_path.rglob("*") if entry.is_file()] == [name]


def test_links_are_passed_over(tmp_path):
    archive = tmp_path / "g.tar.gz"
    archive.write_bytes(tar_of(("train.txt", None), ("test.txt", b"a")))
    assert extract(archive, ["train.txt", "test.txt"], tmp_path) == {
        "test.txt": tmp_path / "test.txt.part"
    }


@pytest.mark.parametrize("name", ["g.tar.gz", "g.zip"])
def test_a_damaged_archive(tmp_path, name):
    whole = (tar_of if name.endswith("gz") else zip_of)(("train.txt", DATA))
    for data in (b"", b"nonsense", whole[: len(whole) // 2]):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadArchiveError, match="not a whole archive"):
            extract(tmp_path / name, ["train.txt"], tmp_path)
        assert [entry.name for entry in tmp_path.iterdir()] == [name]
