"""Columns of names: what may be a name, how names become ids, and tables that speak Arrow.

Ids follow the first appearance, reading train, then valid, then test (then labelled files), line by
line, the head of a line before its tail. The same files therefore give the same ids on every
machine. There is no Python loop over triples, and no second copy of their text: columns are coded
block by block as they are read.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nscaching.errors import UserError, shown
from nscaching.graph.columns import column_order, half_header
from nscaching.graph.files import unreadable

#: Ids of entities and relations; whole numbers of any width; other arrays by their type.
Ids = npt.NDArray[np.int32]
Integers = npt.NDArray[np.integer[Any]]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
SPLITS = ("train", "valid", "test")
#: The name in ``graph.labelled`` of the facts that people rejected.
REJECTED = "rejected"
#: A column of names in which Arrow numbers the names of each block.
CODED = pa.dictionary(pa.int32(), pa.string())
_BLOCK = 1 << 18
#: Rows of a table that are read at once, and bytes of text that an array of strings can hold.
_ROWS, _MOST_TEXT = 1 << 20, 2**31 - 1
#: The name of a text file, and the names of head, relation and tail in its first line.
FirstLine = tuple[str, tuple[str, str, str]]


@dataclass(frozen=True)
class NamedTriples:
    """Triples as three Arrow columns of names of one length, plain or :data:`CODED`."""

    head: Any
    relation: Any
    tail: Any

    def __len__(self) -> int:
        """How many triples there are."""
        return len(self.head)

    @classmethod
    def from_tuples(cls, triples: Sequence[Sequence[str]], what: str = "triples") -> NamedTriples:
        """Take (head, relation, tail) tuples of names."""
        for row, triple in enumerate(triples):
            if isinstance(triple, str) or not hasattr(triple, "__len__") or len(triple) != 3:
                raise UserError(
                    f"Entry {row} of {what} is {shown(repr(triple))}; expected "
                    "(head, relation, tail)."
                )
            if not all(isinstance(name, str) for name in triple):
                raise UserError(
                    f"Entry {row} of {what} is {shown(repr(tuple(triple)))}; names must be "
                    "strings, so wrap other values in str()."
                )
        columns = ([triple[at] for triple in triples] for at in range(3))
        try:
            return cls(*(pa.array(column, pa.string()) for column in columns))
        except UnicodeEncodeError as error:
            raise UserError(
                f"A name in {what} is not valid Unicode: {shown(repr(error.object))}."
            ) from error


@dataclass
class Reading:
    """What a reader returns: triples by name, labels if there are any, remarks for the user."""

    triples: NamedTriples
    labels: Any = None
    """An Arrow column of ``'1'`` and ``'-1'``, or None."""
    notes: list[str] = field(default_factory=list)
    first: list[FirstLine] = field(default_factory=list)
    """First lines of text files that were read as a triple."""


class ColumnBuilder:
    """Collects rows of names one by one, and codes them block by block to save memory."""

    def __init__(self, width: int = 3) -> None:
        self._rows: list[Sequence[str]] = []
        self._chunks: list[list[Any]] = [[] for _ in range(width)]

    def append(self, row: Sequence[str]) -> None:
        """Add one row."""
        self._rows.append(row)
        if len(self._rows) == _BLOCK:
            self._flush()

    def columns(self) -> list[Any]:
        """Return the coded columns of all rows."""
        self._flush()
        return [pa.chunked_array(chunks, CODED) for chunks in self._chunks]

    def _flush(self) -> None:
        for at, chunks in enumerate(self._chunks):
            column = pa.array([row[at] for row in self._rows], pa.string())
            chunks.append(column.dictionary_encode())
        self._rows = []


def encode(splits: Sequence[NamedTriples]) -> tuple[list[str], list[str], list[Ids]]:
    """Return entity names, relation names, and one id array (n, 3) per split."""
    triples: list[Ids] = [np.empty((len(split), 3), dtype=np.int32) for split in splits]
    ends = [[split.head, split.tail] for split in splits]
    entities = _number(ends, [ids[:, ::2] for ids in triples])
    kinds = [[split.relation] for split in splits]
    relations = _number(kinds, [ids[:, 1:2] for ids in triples])
    return entities, relations, triples


def number_names(tables: list[list[Any]]) -> tuple[list[str], list[Ids]]:
    """Give ids to the names of tables of columns, row by row; return names and id tables."""
    ids: list[Ids] = [np.empty((len(table[0]), len(table)), dtype=np.int32) for table in tables]
    return _number(tables, ids), ids


def _number(tables: list[list[Any]], out: list[Ids]) -> list[str]:
    """Write the ids of the names of each table into its array; return the names by id."""
    chunks = [chunk for table in tables for column in table for chunk in coded_chunks(column)]
    if not chunks:
        return []
    coded = iter(pa.chunked_array(chunks, CODED).unify_dictionaries().chunks)
    dictionary = None
    for ids in out:
        for column in range(ids.shape[1]):
            row = 0
            while row < len(ids):
                chunk = next(coded)
                dictionary = chunk.dictionary
                ids[row : row + len(chunk), column] = chunk.indices.to_numpy()
                row += len(chunk)
    assert dictionary is not None
    order = _by_first_appearance(out, len(dictionary))
    new_id = np.full(len(dictionary), -1, dtype=np.int32)
    new_id[order] = np.arange(len(order), dtype=np.int32)
    for block, _ in _blocks(out):
        block[:] = new_id[block]
    names: list[str] = dictionary.take(pa.array(order)).to_pylist()
    return names


def _by_first_appearance(tables: list[Ids], count: int) -> npt.NDArray[np.int64]:
    """Return the codes below ``count`` that occur, ordered by where they first appear."""
    first = np.full(count, -1, dtype=np.int64)
    for block, start in reversed(list(_blocks(tables))):
        codes = block.reshape(-1)
        # Written backwards, so that the last write to a place is the earliest position.
        first[codes[::-1]] = np.arange(start + len(codes) - 1, start - 1, -1)
    used = np.flatnonzero(first >= 0)
    return used[np.argsort(first[used])]


def _blocks(tables: list[Ids]) -> Iterator[tuple[Ids, int]]:
    """Yield the tables in blocks of rows, each with the number of ids before it."""
    start = 0
    for table in tables:
        for row in range(0, len(table), _BLOCK):
            block = table[row : row + _BLOCK]
            yield block, start
            start += block.size


def coded_chunks(column: Any) -> Iterator[Any]:
    """Yield the chunks that are not empty, each with a dictionary of its own.

    A dictionary that the chunks share would be merged once per chunk by ``unify_dictionaries``.
    """
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if len(chunk) and chunk.type == CODED:
            yield chunk
        elif len(chunk):
            yield chunk.cast(pa.string()).dictionary_encode()


def checked_names(names: Sequence[str], kind: str) -> list[str]:
    """Return the names as a list, each a distinct, non-empty line of text.

    Folders keep names one per line, hence no line breaks.
    """
    listed = list(names)
    try:
        joined = "\n".join(listed)
        joined.encode("utf-8")
        lines = joined.count("\n") == max(len(listed) - 1, 0) and "\r" not in joined
        distinct = set(listed)
        if lines and len(distinct) == len(listed) and "" not in distinct:
            return listed
    except (TypeError, UnicodeEncodeError):
        pass
    seen: set[str] = set()
    for name in listed:
        if not isinstance(name, str) or not name or "\n" in name or "\r" in name:
            raise UserError(
                f"The {kind} name {shown(repr(name))} cannot be used; a name is a non-empty "
                "string without line breaks."
            )
        if name in seen:
            raise UserError(
                f"The {kind} name '{shown(name)}' is given twice; names must be distinct."
            )
        seen.add(name)
    raise UserError(f"A {kind} name is not valid Unicode; write the names as UTF-8.")


def checked_id(index: Any, names: Sequence[str], ids: Mapping[str, int], what: str) -> int:
    """Return a checked id; a number that is also the name of another row could mean either."""
    try:
        if isinstance(index, bool | np.bool_):
            raise TypeError
        number = operator.index(index)
    except TypeError:
        raise UserError(f"Give the {what} by name or id, not {index!r}.") from None
    row = ids.get(str(number), number)
    if row != number:
        raise UserError(
            f"The {what} named '{number}' has the id {row}, so {number} could mean two things; "
            f"give names as text: '{number}'."
        )
    if not 0 <= number < len(names):
        raise UserError(f"There is no {what} {number}; ids go from 0 to {len(names) - 1}.")
    return number


# Parquet files, and tables that speak Arrow -------------------------------------------------------


def parquet_blocks(path: Path) -> Iterator[NamedTriples]:
    """Yield the triples of a Parquet file, some at a time."""
    import pyarrow.parquet as pq  # some 30 ms that most commands can do without

    done = 0
    try:
        with path.open("rb") as file:
            names = choose_columns(pq.read_schema(file).names, path)
            file.seek(0)
            whole = pq.ParquetFile(file, pre_buffer=False)  # else all that was read is kept
            for batch in whole.iter_batches(_ROWS, columns=names):
                table = pa.Table.from_batches([batch])
                table.validate()
                yield table_triples(table, names, path, done)
                done += len(table)
    except OSError as error:
        if error.errno is not None:
            raise unreadable(path, error) from error
        raise _not_whole(path, error) from error
    except UserError:
        raise
    except (pa.ArrowException, ValueError, MemoryError, OverflowError) as error:
        raise _not_whole(path, error) from error


def _not_whole(path: Path, error: BaseException) -> UserError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return UserError(f"{path} is not a whole Parquet file ({shown(reason, 200)}); write it again.")


def choose_columns(names: Sequence[str], what: object) -> list[str]:
    """Return the columns of heads, relations and tails, by their names or as the only three."""
    order = column_order(names)
    if order is None and len(names) != 3:
        listed = ", ".join(shown(name, 40) for name in names[:20]) or "(none)"
        raise UserError(
            f"{sentence(what)} has the columns {listed}; expected exactly three, or columns named "
            "head, relation and tail."
        )
    half = half_header(names) if order is None else None
    if half is not None and not half[1]:
        raise UserError(
            f"{sentence(what)} has the columns {', '.join(shown(name, 40) for name in names)}, and "
            f"which has the {half[0]} cannot be told; call them head, relation and tail."
        )
    chosen = [names[at] for at in order or range(3)]
    twice = [name for name in chosen if names.count(name) > 1]
    if twice:
        raise UserError(
            f"{sentence(what)} has several columns called '{shown(twice[0])}'; rename them."
        )
    return chosen


def sentence(what: object) -> str:
    """Return what begins a sentence; a path keeps its letters."""
    return f"T{what[1:]}" if isinstance(what, str) and what.startswith("the ") else str(what)


def table_triples(
    table: Any, columns: Sequence[str], what: object, before: int = 0
) -> NamedTriples:
    """Return three columns of an Arrow table as strings; ``what`` names the table in errors.

    ``before`` counts the rows that were read before.
    """
    return NamedTriples(*(_names(table, name, what, before) for name in columns))


def _names(table: Any, name: str, what: object, before: int) -> Any:
    """Return the column as strings, each usable as a name."""
    if table.column_names.count(name) != 1:  # a part of a nested column, say
        raise UserError(f"Column '{shown(name)}' of {what} cannot be read; expected plain columns.")
    column = table.column(name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not text and not pa.types.is_integer(kind) and str(kind) != "string_view":
        raise UserError(
            f"Column '{shown(name)}' of {what} holds {shown(kind)}; expected strings or whole "
            "numbers."
        )
    try:
        strings = pa.chunked_array(_strings(column, kind), pa.string())
        strings.validate(full=True)
    except (pa.ArrowException, IndexError) as error:
        raise UserError(
            f"Column '{shown(name)}' of {what} cannot be read as UTF-8 text ({shown(error, 200)})."
        ) from error
    for wrong, found in (
        ("no value", strings.is_null()),
        ("an empty name", pc.equal(pc.binary_length(strings), 0)),
        ("a line break in its name", pc.match_substring_regex(strings, "[\r\n]")),
    ):
        row = pc.index(found, True).as_py()
        if row >= 0:
            raise UserError(
                f"Row {before + row + 1} of {what} has {wrong} in column '{shown(name)}'; correct "
                "or remove it."
            )
    return strings


def _strings(column: Any, kind: Any) -> Iterator[Any]:
    """Yield a column, whose values are of a kind, as strings in arrays of at most 2 GiB."""
    for chunk in column.chunks:
        for start in range(0, len(chunk), _ROWS):
            part = chunk.slice(start, _ROWS).cast(kind)
            if part.get_total_buffer_size() > _MOST_TEXT:  # it points into the text of the chunk
                part = pa.concat_arrays([part])
            yield part.cast(pa.string())
