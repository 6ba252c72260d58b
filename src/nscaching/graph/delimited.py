"""Tab- and comma-separated files: the fast way through Arrow.

Arrow parses on several cores but says little about what is wrong. Whenever it fails, or returns
something a triple file cannot hold, the file goes to the slow reader, which names the line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from nscaching.graph.files import arrow_reader, kind_of, no_triples, read_bytes
from nscaching.graph.headers import column_order
from nscaching.graph.reading import Reading
from nscaching.graph.slow_delimited import read_slowly
from nscaching.graph.vocabulary import NamedTriples

LETTERS_ARE_NAMES = frozenset({".csv", ".tsv"})
"""Kinds in which even ``h r t`` is a header; in a .txt file it is more likely a triple."""


def read_delimited(path: Path, *, labelled: bool = False) -> Reading:
    """Read head, relation, tail (and a label 1 or -1) from a .txt, .tsv or .csv file."""
    delimiter = "," if kind_of(path) == ".csv" else "\t"
    data = read_bytes(path)
    if re.search(rb"[^\r\n]", data) is None:
        raise no_triples(path)
    width = 4 if labelled else 3
    notes = []
    header = [] if labelled else _header(data, path, delimiter)
    chosen = column_order(header) if len(header) > width else None
    columns = fast_columns(data, delimiter, len(header) if chosen else width, chosen)
    if columns is None or (labelled and not _are_labels(columns[3])):
        rows = read_slowly(data, path, delimiter, len(header) if chosen else width, chosen)
        columns = [pa.array([row[at] for row in rows], pa.string()) for at in range(width)]
    if chosen is not None:
        others = [name or "(no name)" for at, name in enumerate(header) if at not in chosen]
        notes.append(f"Other columns of {path.name} were ignored: {', '.join(others)}.")
    order = column_order(
        [column[0].as_py() for column in columns[:3]],
        single_letters=chosen is not None or kind_of(path) in LETTERS_ARE_NAMES,
    )
    if order is not None:
        names = ", ".join(column[0].as_py() for column in columns[:3])
        notes.append(f"The first line of {path.name} ({names}) was taken as column names.")
        columns = [columns[at].slice(1) for at in order] + [c.slice(1) for c in columns[3:]]
        if len(columns[0]) == 0:
            raise no_triples(path)
    return Reading(NamedTriples(*columns[:3]), columns[3] if labelled else None, notes)


def _header(data: bytes, path: Path, delimiter: str) -> list[str]:
    """Return the fields of the first line, where this kind of file may have column names there."""
    line = re.search(rb"[^\r\n]+", data)
    if line is None or kind_of(path) not in LETTERS_ARE_NAMES:
        return []
    first = line.group().decode("utf-8", errors="replace")
    try:
        return next(csv.reader([first])) if delimiter == "," else first.split(delimiter)
    except csv.Error:  # no header is that long
        return []


def fast_columns(
    data: bytes, delimiter: str, width: int, chosen: Sequence[int] | None = None
) -> list[Any] | None:
    """Parse with Arrow, all columns or those chosen; None when the slow reader should look."""
    quoted = delimiter == ","
    names = [f"f{at}" for at in range(width)]
    try:
        table = pacsv.read_csv(
            arrow_reader(data),
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
                column_types={name: pa.string() for name in names},
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
    for column in columns:
        if pc.min(pc.binary_length(column)).as_py() == 0:
            return None
        if quoted and pc.any(pc.match_substring_regex(column, "[\r\n]")).as_py():
            return None
    return columns


def _are_labels(column: Any) -> bool:
    """Say whether a column holds 1 and -1 only."""
    return bool(pc.all(pc.is_in(column, pa.array(["1", "-1"]))).as_py())
