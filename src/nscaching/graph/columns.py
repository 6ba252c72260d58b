"""Three columns of a table as triples of names: for Parquet files and for data frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nscaching.errors import UserError
from nscaching.graph.headers import column_order
from nscaching.graph.vocabulary import NamedTriples


def choose_columns(names: Sequence[str], what: object) -> list[str]:
    """Return the columns of heads, relations and tails, by their names or as the only three."""
    order = column_order(names)
    if order is None and len(names) != 3:
        raise UserError(
            f"{sentence(what)} has the columns {', '.join(names) or '(none)'}; expected "
            "exactly three, or columns named head, relation and tail."
        )
    return [names[at] for at in order or range(3)]


def sentence(what: object) -> str:
    """Return what begins a sentence; a path keeps its letters."""
    return f"T{what[1:]}" if isinstance(what, str) and what.startswith("the ") else str(what)


def table_triples(table: Any, columns: Sequence[str], what: object) -> NamedTriples:
    """Return three columns of an Arrow table as strings; ``what`` names the table in errors."""
    return NamedTriples(*(_names(table.column(name), name, what) for name in columns))


def _names(column: Any, name: str, what: object) -> Any:
    """Return the column as strings, each usable as a name."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not text and not pa.types.is_integer(kind) and str(kind) != "string_view":
        raise UserError(
            f"Column '{name}' of {what} holds {kind}; expected strings or whole numbers."
        )
    try:
        strings = column.cast(kind).cast(pa.string())
        strings.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UserError(f"Column '{name}' of {what} is not UTF-8 text ({error}).") from error
    for wrong, found in (
        ("no value", strings.is_null()),
        ("an empty name", pc.equal(pc.binary_length(strings), 0)),
        ("a line break in its name", pc.match_substring_regex(strings, "[\r\n]")),
    ):
        row = pc.index(found, True).as_py()
        if row >= 0:
            raise UserError(
                f"Row {row + 1} of {what} has {wrong} in column '{name}'; correct or remove it."
            )
    return strings
