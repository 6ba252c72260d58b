"""Turning columns of names into ids, without a Python loop over the triples.

Ids are handed out in the order of first appearance, reading train, then valid, then test (then
labelled files), line by line, the head of a line before its tail. The same files therefore always
give the same ids, on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nscaching.errors import UserError

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class NamedTriples:
    """Triples as three Arrow string columns of one length, as a reader returns them."""

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
                    f"Entry {row} of {what} is {triple!r}; expected (head, relation, tail)."
                )
            if not all(isinstance(name, str) for name in triple):
                raise UserError(
                    f"Entry {row} of {what} is {tuple(triple)!r}; names must be strings, "
                    "so wrap other values in str()."
                )
        try:
            return cls.from_columns(*([triple[at] for triple in triples] for at in range(3)))
        except UnicodeEncodeError as error:
            raise UserError(f"A name in {what} is not valid Unicode: {error.object!r}.") from error

    @classmethod
    def from_columns(
        cls, heads: Sequence[str], relations: Sequence[str], tails: Sequence[str]
    ) -> NamedTriples:
        """Take three lists of names that are known to be good."""
        return cls(*(pa.array(column, pa.string()) for column in (heads, relations, tails)))


def encode(splits: Sequence[NamedTriples]) -> tuple[list[str], list[str], list[Ids]]:
    """Return entity names, relation names, and one id array (n, 3) for each split."""
    entities, ends = number_names([[split.head, split.tail] for split in splits])
    relations, kinds = number_names([[split.relation] for split in splits])
    triples = [
        np.ascontiguousarray(np.column_stack([end[:, 0], kind[:, 0], end[:, 1]]), dtype=np.int32)
        for end, kind in zip(ends, kinds, strict=True)
    ]
    return entities, relations, triples


def number_names(tables: list[list[Any]]) -> tuple[list[str], list[Ids]]:
    """Give ids to the names of the tables, row by row; return names and coded tables."""
    columns = [_plain(column) for table in tables for column in table]
    chunks = [chunk for column in columns for chunk in column.chunks]
    encoded = pa.chunked_array(chunks, pa.string()).dictionary_encode().unify_dictionaries()
    if encoded.num_chunks == 0 or len(encoded) == 0:
        return [], [np.zeros((0, len(table)), dtype=np.int32) for table in tables]
    names: list[str] = encoded.chunk(0).dictionary.to_pylist()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    coded: list[Ids] = []
    start = 0
    for table in tables:
        rows = len(table[0])
        block = codes[start : start + rows * len(table)]
        coded.append(np.ascontiguousarray(block.reshape(len(table), rows).T, dtype=np.int32))
        start += rows * len(table)
    order = _by_first_appearance(np.concatenate([table.reshape(-1) for table in coded]), len(names))
    new_id = np.empty(len(names), dtype=np.int32)
    new_id[order] = np.arange(len(names), dtype=np.int32)
    return [names[old] for old in order], [new_id[table] for table in coded]


def _by_first_appearance(codes: Ids, count: int) -> npt.NDArray[np.int64]:
    """Return the codes 0..count-1 ordered by where they first appear."""
    first = np.empty(count, dtype=np.int64)
    # Writing backwards leaves the earliest position, since the last write to a place stays.
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return np.argsort(first)


def _plain(column: Any) -> Any:
    """Return the column as a chunked array of plain strings."""
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    return chunked if chunked.type == pa.string() else chunked.cast(pa.string())
