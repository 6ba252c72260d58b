"""Files that a command is told to write: refused before the work, where they cannot be written.

A file of the user's own is not written over. One of the kind that would be written is: an older
table of answers, an older page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from nscaching.artefacts.files import refuse_no_folder
from nscaching.artefacts.showing import embeddings_format, listing_beside, table_kind
from nscaching.errors import UserError
from nscaching.formulas import GUARDED_COLUMNS

_EMBEDDINGS = "a file of embeddings"
#: How files of ours begin, by what they hold and their suffix; of Parquet the first columns.
_BEGINNINGS = {
    ".csv": ",".join(GUARDED_COLUMNS).encode(),
    ".tsv": "\t".join(GUARDED_COLUMNS).encode(),
    ".json": rb'\[(\{"head": |\]\s*$)',
}
_LENGTH = 512  #: bytes that are looked at


def check_table(path: Path) -> None:
    """Refuse a path that a table of answers cannot be written to."""
    kind = table_kind(path)
    if kind == ".parquet":
        _refuse_other_parquet(path, GUARDED_COLUMNS, "a table of answers")
    else:
        _refuse_other(path, _BEGINNINGS[kind], "a table of answers")


def check_page(path: Path) -> None:
    """Refuse to write a page over a file that is no page of ours, or into no folder."""
    refuse_no_folder(path)
    _refuse_other(
        path, rb'(?is)<!doctype html.*"generator" content="nscaching ', "a page of nscaching"
    )


def check_picture(path: Path) -> None:
    """Refuse to write a picture over a file that is none of ours, or into no folder."""
    refuse_no_folder(path)
    size = rb'width="\d+" height="\d+" viewBox="[^"]*"'
    ours = rb'<svg xmlns="http://www\.w3\.org/2000/svg" %s><title>' % size
    _refuse_other(path, ours, "a picture of nscaching")


def check_reproduction(path: Path) -> None:
    """Refuse to write a page of ``reproduce --report`` over a file that is none."""
    _refuse_other(path, b"# The paper, reproduced", "a page of 'nscaching reproduce --report'")


def check_embeddings(path: Path, format: str = "auto") -> None:
    """Refuse to write embeddings over a file that holds something else."""
    if path.suffix.lower() == ".parquet":
        _refuse_other_parquet(path, ("name", "vector"), _EMBEDDINGS)
    else:
        _refuse_other(path, rb"\x93NUMPY|\d+ \d+\n|PAR1", _EMBEDDINGS)
    if embeddings_format(path, format) == "npy":  # which has its names beside it
        both = path, listing_beside(path)
        there = [file for file in both if file.is_file() and file.stat().st_size]
        if len(there) == 1:
            other = both[there[0] == path].name
            raise UserError(
                f"{there[0]} exists and has no {other} beside it, as embeddings of nscaching have; "
                "choose another file, or remove it."
            )


def _refuse_other(path: Path, beginning: bytes, what: str) -> None:
    """Refuse a file with content that does not begin as given, a regular expression."""
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            start = file.read(_LENGTH)
    except OSError:  # writing says why
        return
    if start and not re.match(beginning, start):
        raise UserError(f"{path} exists and is not {what}; choose another file, or remove it.")


def _refuse_other_parquet(path: Path, columns: tuple[str, ...], what: str) -> None:
    """Refuse a file that is no Parquet file with these columns in front."""
    _refuse_other(path, b"PAR1", what)
    if not path.is_file() or path.stat().st_size == 0:
        return
    from pyarrow import parquet  # some 30 ms that most commands can do without

    try:
        names = parquet.read_schema(path).names
    except (pa.ArrowException, OSError):
        names = []
    if tuple(names[: len(columns)]) != columns:
        raise UserError(f"{path} exists and is not {what}; choose another file, or remove it.")
