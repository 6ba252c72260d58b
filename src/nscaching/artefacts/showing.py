"""Rows as people want them: data frames, HTML in notebooks, and files of tables."""

from __future__ import annotations

import csv
import html
import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from nscaching.artefacts.files import write_atomically, write_text
from nscaching.errors import UserError

#: Signs that a spreadsheet takes for the start of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a pandas data frame."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise UserError(
            "A data frame needs pandas, which is not installed: pip install pandas."
        ) from error
    return pandas.DataFrame(list(rows))


def html_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], left_out: int = 0) -> str:
    """Return a table for a notebook; names in it are text, whatever they contain."""

    def cells(kind: str, texts: Iterable[str]) -> str:
        made = (f"<{kind} style='text-align:left'>{html.escape(t)}</{kind}>" for t in texts)
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(cells("td", (_shown(row.get(name)) for name in columns)) for row in rows)
    more = f"<p>... {left_out:,} more</p>" if left_out > 0 else ""
    return f"<table><thead>{cells('th', columns)}</thead><tbody>{body}</tbody></table>{more}"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Path:
    """Write rows as CSV, tab-separated text, Parquet or JSON, by the suffix of the path."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".tsv", ".parquet", ".json"):
        raise UserError(
            f"Cannot tell the format of {path}: end it in .csv, .tsv, .parquet or .json."
        )
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent}; make it first.")
    if kind == ".json":
        listed = json.dumps([dict(row) for row in rows], ensure_ascii=False, allow_nan=False)
        write_text(path, listed + "\n")
    elif kind == ".parquet":
        from pyarrow import parquet  # some 30 ms that most commands can do without

        arrays = {name: pa.array([row[name] for row in rows], _TYPES.get(name)) for name in columns}
        write_atomically(path, lambda to: parquet.write_table(pa.table(arrays), to))
    else:
        write_atomically(path, lambda to: _write_text_table(to, rows, columns, kind))
    return path


_TYPES = {name: pa.string() for name in ("head", "relation", "tail", "split", "flags")} | {
    name: pa.float64() for name in ("probability", "score")
}


def _write_text_table(
    path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], kind: str
) -> None:
    """Write CSV, in which no cell starts a formula, or tab-separated text as it is."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="," if kind == ".csv" else "\t", lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            cells = ["" if row[name] is None else row[name] for name in columns]
            if kind == ".csv":  # an apostrophe before what a spreadsheet would run as a formula
                texts = [isinstance(c, str) and c.startswith(_FORMULA) for c in cells]
                cells = [f"'{c}" if text else c for c, text in zip(cells, texts, strict=True)]
            writer.writerow(cells)
