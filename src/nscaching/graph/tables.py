"""Tables of triples in text: tab- and comma-separated files, block by block.

Arrow parses text on several cores but says little about what is wrong. Whenever it fails, or
returns something a triple file cannot hold, the block is read again line by line.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from nscaching.errors import UserError, plural, shown
from nscaching.formulas import GUARDED, GUARDED_COLUMNS, UNGUARDED
from nscaching.graph.columns import column_order, half_header
from nscaching.graph.files import Source, kind_of, not_utf8
from nscaching.graph.names import ColumnBuilder, NamedTriples, Reading

LETTERS_ARE_NAMES = frozenset({".csv", ".tsv"})
"""Kinds in which even ``h r t`` is a header; in a .txt file it is more likely a triple."""
COLUMNS = ("head", "relation", "tail", "label")
SEPARATORS = {"\t": "tabs", ",": "commas"}
#: What a file may have between its names in place of what it should.
_SEEN = {";": "semicolons", **SEPARATORS, "|": "vertical bars"}
_HEADER = "with a header line head, relation, tail the other columns are ignored"
#: Spaces before a field in quotes, and the field.
_BEFORE_QUOTES = re.compile(rb'(?<![^,\r\n])( *)("[^"]*(?:""[^"]*)*"?)')


class Delimited:
    """Reads a .txt, .tsv or .csv file in blocks of lines; the first has the header.

    Of names with tabs between them every space counts. Those around names with commas between them
    are left out, but in our own tables of predictions, which hold names as they are.
    """

    def __init__(self, path: Path, *, labelled: bool = False) -> None:
        self.path, self.labelled = path, labelled
        self._delimiter = "," if kind_of(path) == ".csv" else "\t"
        self._width = 4 if labelled else 3  #: columns of a line
        self._chosen: list[int] | None = None  #: those of the names, where a header says so
        self._guarded = False  #: whether it is a table of predictions, with apostrophes in names
        self._begun = labelled
        self._spaced = 0  #: names without the spaces that were around them

    def read(self, source: Source) -> Reading:
        """Read the triples of the next block: head, relation, tail and maybe a label 1 or -1."""
        begun = self._begun
        notes = [] if begun else self._take_header(source)
        columns = self._columns(source)
        if notes:
            columns = [column.slice(1) for column in columns]
        if self._guarded:
            columns = [_unguarded(column) for column in columns]
        elif self._delimiter == ",":
            columns = [self._trimmed(column) for column in columns]
        named = NamedTriples(*columns[:3])
        first = [] if begun or notes or len(named) == 0 else [(self.path.name, _first(named))]
        return Reading(named, columns[3] if self.labelled else None, notes, first)

    def remarks(self) -> list[str]:
        """Return what is to be said once all of the file was read."""
        if self._spaced == 0:
            return []
        names = plural(self._spaced, "name")
        return [f"Spaces around {names} of {self.path.name} were left out."]

    def _trimmed(self, column: Any) -> Any:
        names = column.cast(pa.string())
        bare = pc.utf8_trim(names, " ")
        self._spaced += pc.sum(pc.not_equal(names, bare)).as_py() or 0
        return bare

    def _without_spaces_before_quotes(self, source: Source) -> Source:
        def bare(found: re.Match[bytes]) -> bytes:
            self._spaced += bool(found[1])
            return found[2]

        return Source(self.path, _BEFORE_QUOTES.sub(bare, source.read()), source.first_line)

    def _columns(self, source: Source) -> list[Any]:
        columns, fit = None, self._delimiter != "," or _quotes_fit(source)
        if not fit:
            source = self._without_spaces_before_quotes(source)
            fit = _quotes_fit(source)
        if fit:
            columns = fast_columns(source, self._delimiter, self._width, self._chosen)
        if columns is not None and self.labelled:
            labels = pc.is_in(columns[3], pa.array(["1", "-1"]))
            columns = columns if pc.all(labels).as_py() else None
        if columns is None:
            columns = _read_lines(source, self._delimiter, self._width, self._chosen)
        return columns

    def _take_header(self, source: Source) -> list[str]:
        """Take the first line for column names where it is one; return remarks on that."""
        line = re.search(rb"[^\r\n]*[^ \r\n][^\r\n]*", source.open().read(1 << 16))
        if line is None:
            return []
        self._begun, letters = True, kind_of(self.path) in LETTERS_ARE_NAMES
        first = line.group().decode("utf-8", errors="replace")
        try:
            rows = csv.reader([first], skipinitialspace=True)
            cells = next(rows) if self._delimiter == "," else first.split("\t")
        except csv.Error:  # no header is that long
            return []
        header = [name.strip() for name in cells]
        order = column_order(header, single_letters=letters)
        half = half_header(header, single_letters=False) if order is None else None
        if half is not None and not half[1]:
            raise UserError(
                f"The first line of {self.path} ({', '.join(map(shown, header))}) seems to have "
                f"column names, and which column has the {half[0]} cannot be told; call the "
                "columns head, relation and tail, or write such a header above it if it is a fact."
            )
        order = [0, 1, 2] if half is not None else order
        if order is None or (len(header) > self._width and not letters):
            return []
        notes, name, names = [], self.path.name, header
        if len(header) > self._width:
            others = [shown(each) for at, each in enumerate(header) if at not in order]
            ignored = ", ".join(each or "(no name)" for each in others)
            notes.append(f"Other columns of {name} were ignored: {ignored}.")
            names = [header[at] for at in order]
        self._width, self._chosen = len(header), order
        first_columns = tuple(cells[: len(GUARDED_COLUMNS)])
        self._guarded = self._delimiter == "," and first_columns == GUARDED_COLUMNS
        notes.append(f"The first line of {name} ({', '.join(names)}) was taken as column names.")
        return notes


def _first(named: NamedTriples) -> tuple[str, str, str]:
    head, relation, tail = (c[0].as_py() for c in (named.head, named.relation, named.tail))
    return head, relation, tail


def _quotes_fit(source: Source) -> bool:
    """Say whether quotes open and close only at the edges of fields; Arrow takes any quote."""
    text = np.frombuffer(b"\n" + source.read() + b"\n", dtype=np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    edge = np.zeros(256, dtype=bool)
    edge[list(b',\r\n"')] = True
    fit = edge[text[quotes[::2] - 1]].all() and edge[text[quotes[1::2] + 1]].all()
    return bool(fit) and len(quotes) % 2 == 0


def fast_columns(
    source: Source, delimiter: str, width: int, chosen: Sequence[int] | None = None
) -> list[Any] | None:
    """Parse with Arrow, all columns or those chosen; None when each line should be looked at."""
    quoted = delimiter == ","
    try:
        table = pacsv.read_csv(
            source.arrow(),
            read_options=pacsv.ReadOptions(autogenerate_column_names=True, block_size=1 << 22),
            parse_options=pacsv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if quoted else False,
                double_quote=quoted,
                escape_char=False,
                newlines_in_values=quoted,
                ignore_empty_lines=True,
            ),
            convert_options=pacsv.ConvertOptions(
                column_types={f"f{at}": pa.string() for at in range(width)},
                null_values=[],
                strings_can_be_null=False,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_columns != width or len(table) == 0:
        return None
    columns = [table.columns[at] for at in (range(width) if chosen is None else chosen)]
    named = [pc.utf8_trim(names, " ") if quoted else names for names in columns]
    if any(pc.min(pc.binary_length(names)).as_py() == 0 for names in named):
        return None
    if quoted and any(pc.any(pc.match_substring_regex(n, "[\r\n]")).as_py() for n in columns):
        return None
    return columns


def _unguarded(column: Any) -> Any:
    """Return the names of a column without the apostrophes that keep off spreadsheets."""
    return pc.replace_substring_regex(column.cast(pa.string()), GUARDED, UNGUARDED)


def _read_lines(
    source: Source, delimiter: str, width: int, chosen: Sequence[int] | None
) -> list[Any]:
    """Return the columns of every line, or raise a UserError that names the first bad line.

    Of a file whose header names more columns than are wanted, ``chosen`` are taken. It also reads
    what Arrow refuses without cause, such as a line longer than its block.
    """
    built = ColumnBuilder(width if chosen is None else len(chosen))
    # Of tab-separated text a double quote is an ordinary character.
    lines = ((at, line.split("\t")) for at, line in text_lines(source) if line.strip(" "))
    for number, row in _csv_rows(source) if delimiter == "," else lines:
        place = f"Line {number} of {source.path}"
        if chosen is not None and len(row) == width:
            row = [row[at] for at in chosen]
        elif chosen is not None and width > len(chosen):
            raise UserError(f"{place} has {len(row)} columns; the header has {width}.")
        elif number == 1 and len(row) > width == 3 and kind_of(source.path) in LETTERS_ARE_NAMES:
            raise UserError(f"{_misfit(row, place, delimiter, width)}; {_HEADER}.")
        _check_row(row, place, delimiter, width if chosen is None else len(chosen))
        built.append(row)
    columns = built.columns()
    return [*columns[:3], *(column.cast(pa.string()) for column in columns[3:])]


def _check_row(row: list[str], place: str, delimiter: str, width: int) -> None:
    """Raise unless the row has ``width`` usable names."""
    if len(row) != width:
        raise UserError(
            f"{_misfit(row, place, delimiter, width)}{_instead(row, delimiter, width)}."
        )
    for column, name in zip(COLUMNS, row, strict=False):
        if not (name.strip(" ") if delimiter == "," else name):
            raise UserError(f"{place} has an empty {column}; give it a name or remove the line.")
        if "\n" in name or "\r" in name:
            raise UserError(
                f"{place} has a line break inside the {column} '{shown(name)}'; replace it with a "
                "space."
            )
    if width == 4 and row[3] not in ("1", "-1"):
        raise UserError(f"{place} has the label '{shown(row[3])}'; expected 1 or -1.")


def _misfit(row: list[str], place: str, delimiter: str, width: int) -> str:
    """Say how many columns a line has, and which it should have."""
    wanted = f"{width} ({', '.join(COLUMNS[:width])}) separated by {SEPARATORS[delimiter]}"
    return f"{place} has {plural(len(row), 'column')}; expected {wanted}"


def _instead(row: list[str], delimiter: str, width: int) -> str:
    """Say what separates the names of a line that seems to have one column, and what to do."""
    text = row[0] if len(row) == 1 else ""
    if re.match(r'\s*[\[{]\s*("|$)', delimiter.join(row)):
        return (
            ", where this file looks like JSON; give its triples as a data frame or as a .tsv file"
        )
    seen = [name for sign, name in _SEEN.items() if text.count(sign) == width - 1]
    seen += ["spaces"] if len(text.split()) == width else []
    change = f"; change them to {SEPARATORS[delimiter]} in the whole file"
    return f", where this line has {seen[0]}{change}" if seen else ""


def text_lines(source: Source) -> Iterator[tuple[int, str]]:
    """Yield each line with its number, or name the first that is not UTF-8; CR and LF end lines."""
    # Latin-1 has one character per byte, so that the line ends can be found before decoding.
    with io.TextIOWrapper(source.open(), encoding="latin-1", newline=None) as lines:
        for number, line in enumerate(lines, source.first_line):
            raw = line.rstrip("\n").encode("latin-1")
            try:
                yield number, raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise not_utf8(source.path, number, raw[error.start]) from error


def _csv_rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a row's last line and its fields, with double quotes honoured.

    What is no row is named by its first line, where its quotes begin.
    """
    previous_limit, before = csv.field_size_limit(2**31 - 1), source.first_line - 1
    with io.TextIOWrapper(source.open(), encoding="utf-8", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        number = before
        try:
            for row in reader:
                number = before + reader.line_num
                if len(row) > 1 or (row and row[0].strip(" ")):
                    yield number, row
        except csv.Error as error:
            raise UserError(
                f"Line {number + 1} of {source.path} is not valid CSV ({error}); "
                "quote a name that holds a comma or a quote, and double the quotes inside it."
            ) from error
        except UnicodeDecodeError as error:
            for _ in text_lines(source):  # the first line that fails on its own gives the number
                pass
            raise UserError(f"{source.path} is not UTF-8 text ({error}).") from error
        finally:
            csv.field_size_limit(previous_limit)
