"""Tab- and comma-separated files, line by line: finds the line that is wrong and says so."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from nscaching.errors import UserError
from nscaching.graph.files import no_triples

SEPARATORS = {"\t": "tabs", ",": "commas"}
COLUMNS = ("head", "relation", "tail", "label")


#: What a file may have between its names in place of what it should.
_SEEN = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "vertical bars"}


def read_slowly(
    data: bytes, path: Path, delimiter: str, width: int, chosen: Sequence[int] | None = None
) -> list[list[str]]:
    """Return every row of the file, or raise a UserError that names the first bad line.

    Of a file whose header names more columns than are wanted, ``chosen`` are taken. It also
    reads what Arrow refuses without cause, such as a line longer than its block.
    """
    lines = _csv_rows(data, path) if delimiter == "," else _tab_rows(data, path)
    rows: list[list[str]] = []
    for number, row in lines:
        place = f"Line {number} of {path}"
        if chosen is not None:
            if len(row) != width:
                raise UserError(f"{place} has {len(row)} columns; the header has {width}.")
            row = [row[at] for at in chosen]
        _check_row(row, place, delimiter, width if chosen is None else len(chosen))
        rows.append(row)
    if not rows:
        raise no_triples(path)
    return rows


def _check_row(row: list[str], place: str, delimiter: str, width: int) -> None:
    """Raise unless the row has ``width`` usable names."""
    if len(row) != width:
        found = "1 column" if len(row) == 1 else f"{len(row)} columns"
        raise UserError(
            f"{place} has {found}; expected {width} ({', '.join(COLUMNS[:width])}) "
            f"separated by {SEPARATORS[delimiter]}{_instead(row, width)}."
        )
    for column, name in zip(COLUMNS, row, strict=False):
        if not name:
            raise UserError(f"{place} has an empty {column}; give it a name or remove the line.")
        if "\n" in name or "\r" in name:
            raise UserError(
                f"{place} has a line break inside the {column} {name!r}; replace it with a space."
            )
    if width == 4 and row[3] not in ("1", "-1"):
        raise UserError(f"{place} has the label {row[3]!r}; expected 1 or -1.")


def _instead(row: list[str], width: int) -> str:
    """Say what separates the names of a line that seems to have one column."""
    text = row[0] if len(row) == 1 else ""
    seen = [name for sign, name in _SEEN.items() if text.count(sign) == width - 1]
    seen += ["spaces"] if len(text.split()) == width else []
    return f", where this line has {seen[0]}" if seen else ""


def _tab_rows(data: bytes, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields; a double quote is an ordinary character."""
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip(b" "):
            yield number, _decode(line, path, number).split("\t")


def _csv_rows(data: bytes, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a row's last line and its fields, with double quotes honoured."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        # The first line that fails on its own gives the number.
        for number, line in enumerate(data.splitlines(), 1):
            _decode(line, path, number)
        raise UserError(f"{path} is not UTF-8 text ({error}); save it as UTF-8.") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    previous_limit = csv.field_size_limit(max(len(text), csv.field_size_limit()))
    try:
        for row in reader:
            if len(row) > 1 or (row and row[0].strip(" ")):
                yield reader.line_num, row
    except csv.Error as error:
        raise UserError(
            f"Line {reader.line_num} of {path} is not valid CSV ({error}); "
            "quote a name that holds a comma or a quote, and double the quotes inside it."
        ) from error
    finally:
        csv.field_size_limit(previous_limit)


def _decode(line: bytes, path: Path, number: int) -> str:
    """Decode one line, or name it."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"Line {number} of {path} is not UTF-8 text (byte 0x{line[error.start]:02x}); "
            "save the file as UTF-8."
        ) from error
