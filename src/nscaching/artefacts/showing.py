"""Results for people and other programs: data frames, HTML, files of tables and of embeddings."""

from __future__ import annotations

import csv
import html
import importlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib.format import write_array_header_1_0
from torch import Tensor

from nscaching.artefacts.files import refuse_no_folder, write_atomically, write_text
from nscaching.errors import UserError, shown
from nscaching.formulas import guard


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


def table_kind(path: Path) -> str:
    """Return the suffix that says a table's format; refuse a path that none can be written to."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".tsv", ".parquet", ".json"):
        raise UserError(
            f"Cannot tell the format of {path}: end it in .csv, .tsv, .parquet or .json."
        )
    refuse_no_folder(path)
    return kind


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Path:
    """Write rows as CSV, tab-separated text, Parquet or JSON, by the suffix of the path."""
    kind = table_kind(path)
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


_TEXTS = ("head", "relation", "tail", "split", "flags", "evidence")
_TYPES = {name: pa.string() for name in _TEXTS} | {
    name: pa.float64() for name in ("probability", "score")
}


def _write_text_table(
    path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], kind: str
) -> None:
    """Write CSV, in which no cell starts a formula, or tab-separated text, which has no quotes."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        write = writer.writerow if kind == ".csv" else lambda cells: file.write(_tab_line(cells))
        write(columns)
        for row in rows:
            cells = ["" if row[name] is None else row[name] for name in columns]
            if kind == ".csv":
                cells = [guard(cell) if isinstance(cell, str) else cell for cell in cells]
            write(cells)


def _tab_line(cells: Sequence[Any]) -> str:
    """Return a line of tab-separated text, which our reader splits as it is."""
    texts = [str(cell) for cell in cells]
    for text in texts:
        if any(sign in text for sign in "\t\r\n"):
            raise UserError(
                f"'{shown(text)}' has a tab or a line break, which a .tsv file cannot hold; "
                "write .parquet."
            )
    return "\t".join(texts) + "\n"


# Embeddings ---------------------------------------------------------------------------------------

#: How a file name tells its format.
_BY_SUFFIX = {".npy": "npy", ".parquet": "parquet", ".txt": "word2vec", ".vec": "word2vec"}
FORMATS = ("auto", "npy", "word2vec", "parquet")
#: Rows that are read and written at once.
_ROWS = 1 << 16


def embeddings_format(path: Path, format: str) -> str:
    """Return the format that embeddings are written in; ``auto`` goes by the suffix."""
    return _BY_SUFFIX.get(path.suffix.lower(), "") if format == "auto" else format


def listing_beside(path: Path) -> Path:
    """Return the file of names beside an .npy file."""
    return path.with_suffix(".names.txt")


def export_embeddings(
    path: Path, names: Sequence[str], vectors: Tensor | np.ndarray, format: str = "auto"
) -> list[Path]:
    """Write one row per name; ``auto`` goes by the suffix. Returns the files written."""
    format = embeddings_format(path, format)
    if format not in FORMATS[1:]:
        raise UserError(
            f"Cannot tell the format of {path}: end it in .npy, .txt, .vec or .parquet, or name "
            f"the format ({', '.join(FORMATS[1:])})."
        )
    refuse_no_folder(path)
    if format == "npy":
        return _write_npy(path, names, vectors)
    writer = {"word2vec": _write_word2vec, "parquet": _write_parquet}[format]
    write_atomically(path, lambda temporary: writer(temporary, names, vectors))
    return [path]


def _write_npy(path: Path, names: Sequence[str], vectors: Tensor | np.ndarray) -> list[Path]:
    def save(temporary: Path) -> None:
        told = {"descr": "<f4", "fortran_order": False, "shape": tuple(vectors.shape)}
        with temporary.open("wb") as file:  # a full disk under a map is a crash
            write_array_header_1_0(file, told)
            for _, block in _blocks(vectors):
                file.write(block.astype("<f4", copy=False).data)

    listing = listing_beside(path)
    write_atomically(path, save, 4 * math.prod(vectors.shape))
    write_text(listing, "".join(f"{name}\n" for name in names))
    return [path, listing]


def _write_word2vec(path: Path, names: Sequence[str], vectors: Tensor | np.ndarray) -> None:
    """Write a header line and a line per name; white space in a name becomes an underscore.

    Names that become one word are refused: whoever reads the file would keep one of their vectors.
    """
    hashes = np.empty(len(vectors), dtype=np.int64)  # of the words, which need not fit in memory
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{vectors.shape[0]} {vectors.shape[1]}\n")
        for start, block in _blocks(vectors):
            some = names[start : start + len(block)]
            for place, (name, row) in enumerate(zip(some, block.tolist(), strict=True), start):
                word = _word(name)
                hashes[place] = hash(word)
                file.write(f"{word} {' '.join(f'{value:.9g}' for value in row)}\n")
    found, counts = np.unique(hashes, return_counts=True)
    words: dict[str, str] = {}
    for place in np.flatnonzero(np.isin(hashes, found[counts > 1])).tolist():
        other = words.setdefault(_word(names[place]), names[place])
        if other != names[place]:
            raise UserError(
                f"'{shown(other)}' and '{shown(names[place])}' are the same word in word2vec text, "
                "which has no white space in names; write .npy or .parquet."
            )


def _word(name: str) -> str:
    return "_".join(name.split()) or "_"


def _write_parquet(path: Path, names: Sequence[str], vectors: Tensor | np.ndarray) -> None:
    """Write two columns: ``name`` and ``vector``, a list of fixed size."""
    from pyarrow import parquet

    kind = pa.list_(pa.float32(), vectors.shape[1])
    schema = pa.schema({"name": pa.string(), "vector": kind})
    with parquet.ParquetWriter(path, schema) as writer:
        for start, block in _blocks(vectors):
            rows = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), type=kind)
            part = pa.array(names[start : start + len(block)], pa.string())
            writer.write_table(pa.table([part, rows], schema))


def _blocks(vectors: Tensor | np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Return some rows at a time, and where they begin: the table may be larger than memory."""
    for start in range(0, max(1, len(vectors)), _ROWS):
        block = vectors[start : start + _ROWS]
        if isinstance(block, Tensor):
            block = block.detach().cpu().numpy()
        yield start, np.ascontiguousarray(block, dtype=np.float32)
