import bz2
import gzip
import lzma
import os
from pathlib import Path

import pytest

from nscaching.graph import files, load_graph
from nscaching.graph.files import kind_of, stem_of

from .test_bad_input import complaint
from .test_loading import named

TEXT = b"a\tr\tb\nc\tr\td\n"
PACKED = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.parametrize(
    ("name", "kind", "stem"),
    [
        ("x.tsv", ".tsv", "x"),
        ("a.b.CSV.gz", ".csv", "a.b"),
        ("x.nt.xz", ".nt", "x"),
        ("x", "", "x"),
    ],
)
def test_kind_and_stem_look_through_packing(name, kind, stem):
    assert kind_of(Path(name)) == kind
    assert stem_of(Path(name)) == stem


@pytest.mark.parametrize("ending", PACKED)
def test_a_packed_file_is_read_whole_or_refused(tmp_path, ending):
    path = tmp_path / f"x.txt{ending}"
    packed = PACKED[ending](TEXT * 50_000)
    path.write_bytes(packed)
    graph = load_graph(path)
    assert named(graph) == [("a", "r", "b"), ("c", "r", "d")]
    assert graph.duplicates["train"] == 99_998
    for length in (0, 1, 10, len(packed) // 2, len(packed) - 1):
        path.write_bytes(packed[:length])
        said = complaint(path)
        assert str(path) in said
        assert "not a whole" in said or "is empty" in said


@pytest.mark.parametrize("ending", PACKED)
def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(files, "_ALWAYS_ALLOWED", 10_000)
    path = tmp_path / f"x.txt{ending}"
    path.write_bytes(PACKED[ending](TEXT * 100_000))
    said = complaint(path)
    assert "unpacks to more than" in said
    assert str(path) in said


REMARK = '"a remark of\nseveral\r\nlines, ""quoted"""'


def test_line_breaks_in_quotes_end_no_block(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 50)
    path = tmp_path / "x.csv"
    lines = [f"e{i},r,e{i + 1},{REMARK if i % 3 else 'plain'},{REMARK}\n" for i in range(40)]
    path.write_bytes("".join(["head,relation,tail,note,more\n", *lines]).encode())
    graph = load_graph(path)
    assert named(graph) == [(f"e{i}", "r", f"e{i + 1}") for i in range(40)]
    blocks = list(files.text_blocks(path))
    assert len(blocks) > 10
    assert b"".join(block.read() for block in blocks) == path.read_bytes()
    with path.open("ab") as more:
        more.write(b"a,r,b\n")
    line = path.read_bytes().count(b"\n")
    assert f"Line {line} of {path} has 3 columns; the header has 5" in complaint(path)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_quotes_that_stay_open_are_named_by_their_line(tmp_path, monkeypatch, end):
    monkeypatch.setattr(files, "BLOCK", 100)
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,r,b\n".replace(b"\n", end) * 40 + b'a,"r,b' + end + (b"c,r,d" + end) * 900)
    assert max(len(block.read()) for block in files.text_blocks(path)) < 600
    assert f"Line 41 of {path} is not valid CSV" in complaint(path)


def test_the_progress_of_a_large_file_is_reported(tmp_path, monkeypatch):
    path = tmp_path / "x.tsv"
    path.write_bytes(b"".join(b"e%d\tr\te%d\n" % (i, i + 1) for i in range(200_000)))
    told = []
    with files.reading_progress(lambda *given: told.append(given)):
        load_graph(path)
        assert told == []  # it is not large
        monkeypatch.setattr(files, "_LARGE", 1 << 20)
        load_graph(path)
    size = path.stat().st_size
    assert told[-1] == (size, size, "x.tsv")
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    told.clear()
    load_graph(path)
    assert told == []


def test_a_pipe_is_read_once():
    reading, writing = os.pipe()
    os.write(writing, TEXT)
    os.close(writing)
    assert named(load_graph(f"/dev/fd/{reading}")) == [("a", "r", "b"), ("c", "r", "d")]
    os.close(reading)


def test_a_path_that_is_not_utf_8(tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff.tsv"
    try:
        Path(os.fsdecode(name)).write_bytes(TEXT)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    graph = load_graph(os.fsdecode(name))
    assert graph.num_entities == 4
    assert graph.name.encode("utf-8")
