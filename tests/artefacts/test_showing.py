"""Exports are read back by numpy, by a few lines of code, and by pyarrow."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from nscaching import KnowledgeGraph, UserError
from nscaching.artefacts import showing
from nscaching.artefacts.showing import export_embeddings, write_table
from nscaching.graph import read_triples

from ..training.helpers import train

NAMES = ["Zürich 🏔", "two  words", "tab\tinside", "plain", "comma, here"]


@pytest.fixture
def vectors():
    return np.random.default_rng(0).standard_normal((len(NAMES), 7)).astype(np.float32)


def read_word2vec(path):
    """Read the text format the way its readers do: a header, then a word and its numbers."""
    header, *lines = path.read_text(encoding="utf-8").split("\n")
    count, width = map(int, header.split(" "))
    assert lines.pop() == ""
    words, rows = [], []
    for line in lines:
        word, *values = line.split(" ")
        assert len(values) == width
        words.append(word)
        rows.append([float(value) for value in values])
    assert len(words) == count
    return words, np.array(rows, dtype=np.float32)


def test_npy_with_names(tmp_path, vectors):
    files = export_embeddings(tmp_path / "e.npy", NAMES, vectors)
    assert files == [tmp_path / "e.npy", tmp_path / "e.names.txt"]
    assert np.array_equal(np.load(files[0], allow_pickle=False), vectors)
    assert files[1].read_bytes().decode("utf-8").split("\n") == [*NAMES, ""]


@pytest.mark.parametrize("ending", ["txt", "vec"])
def test_word2vec_text_keeps_every_bit(tmp_path, vectors, ending):
    (path,) = export_embeddings(tmp_path / f"e.{ending}", NAMES, vectors)
    words, rows = read_word2vec(path)
    assert words == ["Zürich_🏔", "two_words", "tab_inside", "plain", "comma,_here"]
    assert np.array_equal(rows, vectors)


def test_names_that_are_one_word_are_refused_in_word2vec_text(tmp_path, vectors):
    names = ["a b", "c", "a\tc", "d", "a_b"]
    with pytest.raises(UserError, match="'a b' and 'a_b' are the same word in word2vec text"):
        export_embeddings(tmp_path / "e.vec", names, vectors)
    assert not list(tmp_path.iterdir())


def test_parquet(tmp_path, vectors):
    (path,) = export_embeddings(tmp_path / "e.parquet", NAMES, vectors)
    table = pq.read_table(path)
    assert table.column("name").to_pylist() == NAMES
    rows = np.array(table.column("vector").to_pylist(), dtype=np.float32)
    assert np.array_equal(rows, vectors)


def test_a_named_format_wins_over_the_ending(tmp_path, vectors):
    (path,) = export_embeddings(tmp_path / "e.npy", NAMES, vectors, "word2vec")
    assert read_word2vec(path)[1].shape == vectors.shape


def test_a_run_exports_entities_and_relations(tmp_path):
    graph = KnowledgeGraph.from_triples([("a b", "likes", "c"), ("c", "knows", "a b")])
    run = train(graph)
    for what, names in (("entity", graph.entities), ("relation", graph.relations)):
        run.export(tmp_path / "e.parquet", what)
        table = pq.read_table(tmp_path / "e.parquet")
        assert table.column("name").to_pylist() == names
        rows = np.array(table.column("vector").to_pylist(), dtype=np.float32)
        assert np.array_equal(rows, run.embeddings(what))


def test_what_cannot_be_exported_is_said_and_nothing_is_written(tmp_path, vectors):
    with pytest.raises(UserError, match="Cannot tell the format"):
        export_embeddings(tmp_path / "e.doc", NAMES, vectors)
    with pytest.raises(UserError, match="npy, word2vec, parquet"):
        export_embeddings(tmp_path / "e.npy", NAMES, vectors, "hdf5")
    with pytest.raises(UserError, match="no folder"):
        export_embeddings(tmp_path / "none" / "e.npy", NAMES, vectors)
    (tmp_path / "d.npy").mkdir()
    with pytest.raises(UserError, match="Cannot write"):
        export_embeddings(tmp_path / "d.npy", NAMES, vectors)
    assert [file.name for file in tmp_path.iterdir()] == ["d.npy"]


@pytest.mark.parametrize("count", [0, 5])
def test_npy_is_written_without_a_map(tmp_path, monkeypatch, vectors, count):
    """A full disk under a map ends the process."""

    def refused(*given, **options):
        raise AssertionError("mapped")

    monkeypatch.setattr(np, "memmap", refused)
    monkeypatch.setattr(showing, "_ROWS", 2)
    export_embeddings(tmp_path / "e.npy", NAMES[:count], vectors[:count])
    assert np.array_equal(np.load(tmp_path / "e.npy"), vectors[:count])


def test_names_of_a_tab_separated_table_come_back_as_they_were(tmp_path):
    columns = ("head", "relation", "tail", "probability")
    triples = [('say "hi"', "=x", "-5"), ('"', "a\\b", " comma, here ")]
    rows = [dict(zip(columns, (*triple, 0.25), strict=True)) for triple in triples]
    assert read_triples(write_table(tmp_path / "facts.tsv", rows, columns)) == triples
    for name in ("tab\tinside", "line\nbreak", "line\rbreak"):
        with pytest.raises(UserError, match=r"cannot hold; write \.parquet"):
            write_table(tmp_path / "other.tsv", [rows[0] | {"tail": name}], columns)
    assert [file.name for file in tmp_path.iterdir()] == ["facts.tsv"]
