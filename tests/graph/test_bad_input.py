"""Every mistake gives one or two sentences with the file, the line and the remedy."""

import gzip
from pathlib import Path

import pytest

from nscaching.errors import UserError
from nscaching.graph import load_graph


def complaint(path):
    with pytest.raises(UserError) as caught:
        load_graph(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("x.txt", b"a\tr\tb\na\tr\n", ["Line 2", "2 columns", "expected 3", "tabs"]),
        ("x.txt", b"a\tr\n", ["Line 1", "2 columns"]),
        ("x.txt", b"a r b\n", ["Line 1", "1 column;", "tabs"]),
        ("x.txt", b"\na\tr\tb\nc\tr\td\te\tf\n", ["Line 3", "5 columns"]),
        ("x.txt", b"a\tr\tb\t1\n", ["Line 1", "4 columns"]),
        ("x.tsv", b"a\tr\tb\t1\n", ["Line 1", "4 columns", "with a header line head, relation"]),
        ("x.txt", b"a\tr\tb\n\tr\tb\n", ["Line 2", "empty head"]),
        ("x.txt", b"a\tr\t\n", ["Line 1", "empty tail"]),
        ("x.txt", b"a\tr\tb\nc\xff\tr\td\n", ["Line 2", "UTF-8", "0xff"]),
        ("x.txt", b"", ["is empty"]),
        ("x.txt", b"\n\r\n\n", ["is empty"]),
        ("x.txt", b"  \n \n", ["is empty"]),
        ("x.txt", b"\xef\xbb\xbf", ["is empty"]),
        ("x.tsv", b"head\trelation\ttail\n", ["is empty"]),
        ("x.csv", b"", ["is empty"]),
        ("x.csv", b"a,r,b\na,r\n", ["Line 2", "2 columns", "commas"]),
        ("x.csv", b"a,r,b\n,r,b\n", ["Line 2", "empty head"]),
        ("x.csv", b'a,r,b\na,"",b\n', ["Line 2", "empty relation"]),
        ("x.csv", b'a,r,"two\nlines"\n', ["line break inside the tail"]),
        ("x.csv", b'a,r,b\n"a,r,b\nc,r,d\n', ["Line 2", "not valid CSV"]),
        ("x.csv", b'a,r,"b\n', ["not valid CSV"]),
        ("x.csv", b"a,r,b\na,r,\xe9\n", ["Line 2", "UTF-8"]),
        ("x.nt", b"<a> <b> <c> .\n<a> <b> .\n", ["Line 2", "N-Triples"]),
        ("x.nt", b"<a> <b> <c>\n", ["Line 1"]),
        ("x.nt", b'<a> <b> "only literals" .\n', ["literals"]),
        ("x.nt", b"# nothing\n", ["is empty"]),
        ("x.nt", b"<a> <b> <c> .\n<a> <b> <\xff> .\n", ["Line 2", "UTF-8"]),
        ("x.nt", b"<a> <b> <c\\u000A> .\n", ["Line 1", "escape"]),
        ("x.nt", b"<a> <b> <c\\uD800> .\n", ["Line 1", "escape"]),
        ("x.nt", b"<a> <b> <c\\q> .\n", ["Line 1", "escape"]),
        ("x.parquet", b"PAR1 but not really", ["Parquet"]),
        ("x.parquet", b"", ["Parquet"]),
        ("x.txt.gz", b"not gzip", ["gzip"]),
        ("x.txt.gz", gzip.compress(b"a\tr\tb\n" * 99, mtime=0)[:-9], ["gzip"]),
        ("x.txt.gz", gzip.compress(b"", mtime=0), ["is empty"]),
        ("x.txt.gz", gzip.compress(b"a\tr\n", mtime=0), ["Line 1", "2 columns"]),
    ],
)
def test_bad_files(tmp_path, name, data, words):
    path = tmp_path / name
    path.write_bytes(data)
    said = complaint(path)
    assert str(path) in said
    for word in words:
        assert word in said
    assert "\n" not in said


def test_a_missing_file_and_an_unknown_name(tmp_path):
    assert "no file or folder" in complaint(tmp_path / "absent.txt")
    assert "did you mean 'WN18RR'" in complaint("wn18r")
    assert "no file or folder" in complaint("x" * 5000)
    assert "no file or folder" in complaint("nul\0byte")


def test_an_unreadable_file(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    path.write_text("a\tr\tb\n")

    def refuse(self, *given, **named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert "permissions" in complaint(path)


def test_a_folder_without_train(tmp_path):
    (tmp_path / "edges.txt").write_text("a\tb\n")
    said = complaint(tmp_path)
    assert "edges.txt" in said
    assert "train.txt" in said
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no files" in complaint(empty)


def test_a_folder_with_two_candidates(tmp_path):
    (tmp_path / "train.txt").write_text("a\tr\tb\n")
    (tmp_path / "train.tsv").write_text("a\tr\tb\n")
    said = complaint(tmp_path)
    assert "train.tsv and train.txt" in said


def test_bad_labels(tmp_path):
    (tmp_path / "train.txt").write_text("a\tr\tb\n")
    labelled = tmp_path / "test.labeled.txt"
    labelled.write_text("a\tr\tb\t1\na\tr\tb\tyes\n")
    assert "Line 2" in complaint(tmp_path)
    labelled.write_text("a\tr\tb\n")
    assert "3 columns; expected 4" in complaint(tmp_path)
