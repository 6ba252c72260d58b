"""Names of entities and relations: what may be one, and how columns of names become ids.

Ids follow the first appearance, reading train, then valid, then test (then labelled files), line by
line, the head of a line before its tail. The same files therefore give the same ids on every
machine. There is no Python loop over triples, and no second copy of their text: readers hand over
columns that Arrow has coded block by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nscaching.errors import UserError, shown

Ids = npt.NDArray[np.int32]
SPLITS = ("train", "valid", "test")
#: The name in ``graph.labelled`` of the facts that people rejected.
REJECTED = "rejected"
#: A column of names in which Arrow numbers the names of each block.
CODED = pa.dictionary(pa.int32(), pa.string())
_BLOCK = 1 << 18


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
    chunks = [chunk for table in tables for column in table for chunk in _coded_chunks(column)]
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


def _coded_chunks(column: Any) -> Iterator[Any]:
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
