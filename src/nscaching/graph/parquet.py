"""Parquet files: three columns, found by their names or by being the only three."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nscaching.errors import UserError
from nscaching.graph.files import no_triples, unreadable
from nscaching.graph.headers import column_order
from nscaching.graph.reading import Reading
from nscaching.graph.vocabulary import NamedTriples


def read_parquet(path: Path) -> Reading:
    """Read head, relation and tail; other columns are ignored when the three have names."""
    try:
        with path.open("rb") as file:
            schema = pq.read_schema(file)
            order = column_order(schema.names)
            if order is None and len(schema.names) != 3:
                raise UserError(
                    f"{path} has the columns {', '.join(schema.names) or '(none)'}; expected "
                    "exactly three, or columns named head, relation and tail."
                )
            file.seek(0)
            names = [schema.names[at] for at in order or range(3)]
            table = pq.read_table(file, columns=names, use_threads=True)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{path} is not a whole Parquet file ({reason}); write it again."
        ) from error
    except OSError as error:
        if error.errno is not None:
            raise unreadable(path, error) from error
        raise UserError(f"{path} is damaged ({error}); write it again.") from error
    if len(table) == 0:
        raise no_triples(path)
    return Reading(NamedTriples(*(_names(table.column(name), name, path) for name in names)))


def _names(column: Any, name: str, path: Path) -> Any:
    """Return the column as strings, each usable as a name."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not text and not pa.types.is_integer(kind) and str(kind) != "string_view":
        raise UserError(
            f"Column '{name}' of {path} holds {kind}; expected strings or whole numbers."
        )
    try:
        strings = column.cast(kind).cast(pa.string())
        strings.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UserError(f"Column '{name}' of {path} is not UTF-8 text ({error}).") from error
    for wrong, found in (
        ("no value", strings.is_null()),
        ("an empty name", pc.equal(pc.binary_length(strings), 0)),
        ("a line break in its name", pc.match_substring_regex(strings, "[\r\n]")),
    ):
        row = pc.index(found, True).as_py()
        if row >= 0:
            raise UserError(
                f"Row {row + 1} of {path} has {wrong} in column '{name}'; correct or remove it."
            )
    return strings
