import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscaching.errors import UserError, shown
from nscaching.graph import names
from nscaching.graph.names import CODED, ColumnBuilder, checked_names, number_names

ROWS = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), max_size=30)


def column(values, coded, chunk):
    parts = [values[at : at + chunk] for at in range(0, len(values), chunk)]
    arrays = [pa.array(part, pa.string()) for part in parts]
    if coded:
        return pa.chunked_array([array.dictionary_encode() for array in arrays], CODED)
    return pa.chunked_array(arrays, pa.string())


@given(st.lists(ROWS, max_size=3), st.booleans(), st.integers(1, 7), st.integers(1, 9))
def test_ids_follow_the_first_appearance_row_by_row(tables, coded, chunk, block):
    """Whatever the chunks of Arrow and the blocks of rows."""
    given_columns = [
        [column([row[at] for row in table], coded, chunk) for at in range(2)] for table in tables
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names, "_BLOCK", block)
        found, ids = number_names(given_columns)
    expected = list(dict.fromkeys(name for table in tables for row in table for name in row))
    assert found == expected
    for table, coded_table in zip(tables, ids, strict=True):
        assert coded_table.dtype == np.int32
        assert [[found[a], found[b]] for a, b in coded_table.tolist()] == [list(r) for r in table]


def test_names_of_rows_that_were_cut_off_get_no_id():
    whole = pa.chunked_array([pa.array(["head", "a", "b"]).dictionary_encode()], CODED)
    assert number_names([[whole.slice(1)]])[0] == ["a", "b"]


def test_the_builder_codes_block_by_block(monkeypatch):
    monkeypatch.setattr(names, "_BLOCK", 3)
    built = ColumnBuilder(2)
    rows = [(f"a{i % 4}", f"b{i}") for i in range(8)]
    for row in rows:
        built.append(row)
    columns = built.columns()
    assert [c.num_chunks for c in columns] == [3, 3]
    assert list(zip(*(c.to_pylist() for c in columns), strict=True)) == rows


@pytest.mark.parametrize(
    ("given_names", "words"),
    [
        (["a", ""], "''"),
        (["a", "b\nc"], "line breaks"),
        (["a\r"], "line breaks"),
        (["a", 7], "7"),
        (["a", "b", "a"], "'a' is given twice"),
        (["\ud800"], "Unicode"),
        (["x" * 5000] * 2, r"xxx\.\.\.' is given twice"),
    ],
)
def test_names_that_cannot_be_used(given_names, words):
    with pytest.raises(UserError, match=words) as caught:
        checked_names(given_names, "entity")
    assert len(str(caught.value)) < 250


def test_shown_escapes_control_characters_and_cuts():
    assert shown("café") == "café"
    assert shown("\x1b[31m\x9b\u202e\n") == "\\x1b[31m\\x9b\\u202e\\n"
    assert shown("x" * 100, 10) == "xxxxxxx..."
