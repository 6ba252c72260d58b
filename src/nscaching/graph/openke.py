"""OpenKE folders: triples as ids, with the names in files of their own.

Every file starts with a line that counts the rest. ``entity2id.txt`` and ``relation2id.txt`` hold a
name and its id; ``train2id.txt``, ``valid2id.txt`` and ``test2id.txt`` hold head, tail and
relation, in that order.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from nscaching.errors import UserError, shown
from nscaching.graph.files import arrow_reader, not_utf8, read_bytes
from nscaching.graph.knowledge_graph import KnowledgeGraph
from nscaching.graph.names import SPLITS, Ids

_NUMBER = re.compile(rb"\s*(-?[0-9]{1,18})\s*")


def load_openke(folder: Path, name: str) -> KnowledgeGraph:
    """Load the graph; a missing valid2id.txt or test2id.txt means no such triples."""
    entities = _read_names(folder / "entity2id.txt")
    relations = _read_names(folder / "relation2id.txt")
    limits = (len(entities), len(entities), len(relations))
    splits = []
    for split in SPLITS:
        path = folder / f"{split}2id.txt"
        if path.exists() or split == "train":
            splits.append(_read_ids(path, limits))
        else:
            splits.append(np.zeros((0, 3), dtype=np.int32))
    if len(splits[0]) == 0:
        raise UserError(f"{folder / 'train2id.txt'} holds no triples; expected at least one.")
    return KnowledgeGraph(entities, relations, *splits, name=name)


def _number(text: bytes) -> int | None:
    """Return a whole number of at most 18 digits, or None."""
    found = _NUMBER.fullmatch(text)
    return int(found[1]) if found else None


def _quoted(line: bytes) -> str:
    return f"'{shown(line.decode('utf-8', errors='replace'), 60)}'"


def _lines(path: Path) -> tuple[int, bytes]:
    """Return the count of the first line and the bytes after it."""
    first, _, rest = read_bytes(path).replace(b"\r\n", b"\n").partition(b"\n")
    count = _number(first)
    if count is None or count < 0:
        raise UserError(
            f"Line 1 of {path} is {_quoted(first)}; expected the number of lines that follow."
        )
    return count, rest


def _check_count(path: Path, promised: int, found: int) -> None:
    """Raise unless the file holds as many lines as it promised."""
    if promised != found:
        raise UserError(
            f"Line 1 of {path} promises {promised:,} lines but {found:,} follow; the file may be "
            "truncated, or the number is wrong."
        )


def _read_names(path: Path) -> list[str]:
    """Return names by id; the ids must be 0, 1, 2, ... in any order."""
    promised, rest = _lines(path)
    names: dict[int, str] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(rest.split(b"\n"), 2):
        if not line.strip():
            continue
        place = f"Line {number} of {path}"
        name, _, last = line.rstrip().rpartition(b"\t" if b"\t" in line else b" ")
        identifier = _number(last)
        if not name or b"\r" in name or identifier is None:
            raise UserError(f"{place} is {_quoted(line)}; expected a name, a tab and an id.")
        if not 0 <= identifier < promised:
            raise UserError(f"{place} has the id {identifier}; ids go from 0 to {promised - 1}.")
        if identifier in names:
            raise UserError(
                f"{place} has the id {identifier}, which '{shown(names[identifier])}' has."
            )
        try:
            names[identifier] = name.decode("utf-8")
        except UnicodeDecodeError as error:
            raise not_utf8(path, number, name[error.start]) from error
        before = lines.setdefault(names[identifier], number)
        if before != number:
            raise UserError(
                f"{place} has the name '{shown(names[identifier])}', as line {before} has; names "
                "must be distinct."
            )
    _check_count(path, promised, len(names))
    return [names[identifier] for identifier in range(promised)]


def _read_ids(path: Path, limits: tuple[int, int, int]) -> Ids:
    """Return triples as head, relation, tail, each id checked against its range."""
    promised, rest = _lines(path)
    rows = _read_fast(rest)
    if rows is None or ((rows < 0) | (rows >= np.array(limits))).any():
        rows = _read_by_line(rest, path, limits)
    _check_count(path, promised, len(rows))
    return np.ascontiguousarray(rows[:, [0, 2, 1]], dtype=np.int32)


def _read_fast(data: bytes) -> npt.NDArray[np.int64] | None:
    """Parse with Arrow; None when a line is not simply three numbers."""
    names = ["head", "tail", "relation"]
    try:
        table = pacsv.read_csv(
            arrow_reader(data.replace(b"\t", b" ")),
            read_options=pacsv.ReadOptions(column_names=names),
            parse_options=pacsv.ParseOptions(delimiter=" ", quote_char=False),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.int64()), null_values=[]
            ),
        )
    except pa.ArrowInvalid:
        return None
    return np.column_stack([column.to_numpy() for column in table.columns])


def _read_by_line(data: bytes, path: Path, limits: tuple[int, int, int]) -> npt.NDArray[np.int64]:
    """Parse line by line, tolerating extra spaces, and name the first bad line."""
    rows: list[list[int]] = []
    for number, line in enumerate(data.split(b"\n"), 2):
        parts = line.split()
        if not parts:
            continue
        place = f"Line {number} of {path}"
        row = [value for value in map(_number, parts) if value is not None]
        if len(parts) != 3 or len(row) != 3:
            raise UserError(f"{place} is {_quoted(line)}; expected three ids: head tail relation.")
        for kind, value, limit in zip(("head", "tail", "relation"), row, limits, strict=True):
            if not 0 <= value < limit:
                raise UserError(
                    f"{place} has the {kind} id {value}; ids go from 0 to {limit - 1} "
                    "(the order is head tail relation)."
                )
        rows.append(row)
    return np.array(rows, dtype=np.int64).reshape(-1, 3)
