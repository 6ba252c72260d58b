"""Triples in columns of names: Parquet files, and tables that speak Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nscaching.errors import UserError, shown
from nscaching.graph.files import no_triples, unreadable
from nscaching.graph.names import NamedTriples, Reading
from nscaching.graph.tables import column_order


def read_parquet(path: Path) -> Reading:
    """Read head, relation and tail; other columns are ignored when the three have names."""
    blocks = list(parquet_blocks(path, 1 << 22))
    if not blocks:
        raise no_triples(path)
    columns = zip(*((block.head, block.relation, block.tail) for block in blocks), strict=True)
    whole = [pa.chunked_array([c for part in parts for c in part.chunks]) for parts in columns]
    return Reading(NamedTriples(*whole))


def parquet_blocks(path: Path, rows: int = 1 << 18) -> Iterator[NamedTriples]:
    """Yield the triples of a Parquet file, so many at a time."""
    import pyarrow.parquet as pq  # some 30 ms that most commands can do without

    done = 0
    try:
        with path.open("rb") as file:
            names = choose_columns(pq.read_schema(file).names, path)
            file.seek(0)
            for batch in pq.ParquetFile(file).iter_batches(rows, columns=names):
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
        strings = column.cast(kind).cast(pa.string())
        strings.validate(full=True)
    except (pa.ArrowException, IndexError) as error:
        raise UserError(
            f"Column '{shown(name)}' of {what} is not UTF-8 text ({shown(error, 200)})."
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
