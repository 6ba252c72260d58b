import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nscaching.graph import KnowledgeGraph, load_graph, names

from .test_bad_input import complaint
from .test_loading import named


def test_a_parquet_file_is_not_kept_in_memory(tmp_path, monkeypatch):
    """With buffers read ahead, pyarrow keeps all of a file until its end."""
    path, given, opened = tmp_path / "g.parquet", [], pq.ParquetFile

    def noted(*args, **options):
        given.append(options)
        return opened(*args, **options)

    pq.write_table(pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"]}), path)
    monkeypatch.setattr(pq, "ParquetFile", noted)
    assert len(load_graph(path).train) == 1
    assert given[0] == {"pre_buffer": False}


def test_parquet_columns_by_name_and_integers(tmp_path):
    table = pa.table({"weight": [1.0], "tail": [7], "Head": ["a"], "relation": ["r"]})
    pq.write_table(table, tmp_path / "x.parquet")
    assert named(load_graph(tmp_path / "x.parquet")) == [("a", "r", "7")]
    coded = pa.array(["r", "r"]).dictionary_encode()
    pq.write_table(pa.table({"x": [1, 2], "y": coded, "z": [2, 3]}), tmp_path / "y.parquet")
    assert named(load_graph(tmp_path / "y.parquet")) == [("1", "r", "2"), ("2", "r", "3")]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": ["x"], "b": ["y"]}, ["columns a, b", "three"]),
        ({"h": ["x"], "r": ["y"], "t": [""]}, ["Row 1", "empty", "'t'"]),
        ({"h": ["x", None], "r": ["y", "y"], "t": ["z", "z"]}, ["Row 2", "no value", "'h'"]),
        ({"h": ["x", "a\nb"], "r": ["y", "y"], "t": ["z", "z"]}, ["Row 2", "line break"]),
        ({"h": [0.5], "r": ["y"], "t": ["z"]}, ["'h'", "double"]),
        ({"h": pa.array([], pa.string()), "r": [], "t": []}, ["is empty"]),
    ],
)
def test_bad_parquet(tmp_path, columns, words):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(columns), path)
    said = complaint(path)
    for word in [*words, str(path)]:
        assert word in said


def test_text_beyond_the_offsets_of_32_bits_is_read_in_parts(tmp_path):
    with (tmp_path / "text").open("wb") as file:  # nearly all of it is a hole
        file.seek(1 << 31)
        file.write(b"abc")
    text = pa.memory_map(str(tmp_path / "text")).read_buffer()
    ends = pa.py_buffer(np.arange(4, dtype=np.int64) + (1 << 31))
    far = pa.Array.from_buffers(pa.large_string(), 3, [None, ends, text])
    table = pa.table({"head": far, "relation": ["r", "r", "s"], "tail": far[::-1]})
    assert named(KnowledgeGraph.from_dataframe(table)) == [
        ("a", "r", "c"),
        ("b", "r", "b"),
        ("c", "s", "a"),
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.int64()])
@pytest.mark.parametrize("coded", [False, True])
def test_a_table_is_read_some_rows_at_a_time(monkeypatch, kind, coded):
    monkeypatch.setattr(names, "_ROWS", 3)
    monkeypatch.setattr(names, "_MOST_TEXT", 0)
    if coded and kind == pa.string_view():
        pytest.skip("Arrow codes no views")
    column = pa.array(["10", "7", "8", "7"]).cast(kind)
    column = column.dictionary_encode() if coded else column
    table = pa.table({"head": column, "relation": ["r"] * 4, "tail": ["t"] * 4})
    strings = names.table_triples(table, table.column_names, "it").head
    assert [chunk.to_pylist() for chunk in strings.chunks] == [["10", "7", "8"], ["7"]]
    assert strings.type == pa.string()


ONE = pa.array(["x"])


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([["x"]]), "list"),
        (pa.array([{"a": "x"}]), "struct"),
        (pa.array([b"\xff"]), "binary"),
        (pa.array([datetime.datetime(2020, 1, 1)]), "timestamp"),
        (pa.array([None]), "null"),
        (pa.array([True]), "bool"),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), "map"),
    ],
)
def test_a_column_of_another_type_is_named(tmp_path, column, kind):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"h": column, "r": ONE, "t": ONE}), path)
    said = complaint(path)
    assert said.startswith(f"Column 'h' of {path} holds {kind}")
    assert said.endswith("expected strings or whole numbers.")


def test_columns_of_one_name_are_refused(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_arrays([ONE] * 3, names=["a", "a", "b"]), path)
    assert "several columns called 'a'" in complaint(path)
    pq.write_table(pa.Table.from_arrays([ONE] * 4, names=["head", "rel", "tail", "tail"]), path)
    assert "has the columns head, rel, tail, tail" in complaint(path)


def test_a_column_name_with_control_characters_is_escaped_and_cut(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"\x1b[31m" + "x" * 500: [0.5], "r": ONE, "t": ONE}), path)
    said = complaint(path)
    assert "\\x1b[31mxxx" in said
    assert said.isprintable()
    assert len(said) < 300
