"""Results: rows of JSON files, and how they stand beside the paper's numbers.

There is one file per table or figure. It is the trial log of a reproduction: a list with one record
per finished cell, one per line. What is in it is done.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nscaching.artefacts.files import explained_writes, sealed, unsealed, write_text
from nscaching.errors import UserError, shown
from nscaching.experiments.paper.definitions import LENGTHS, Cell, printed
from nscaching.experiments.runner import TrialLog

Row = dict[str, Any]
_FIELDS = ("dataset", "scoring", "sampler", "mode", "options", "seed", "kind")
_UNSEALED = ("0.1.0",)  #: versions whose rows carry no digest
#: Which numbers of the paper a definition is held against.
_PRINTED_IN = {
    "link-table": "link_prediction",
    "search-table": "link_prediction",
    "classification-table": "classification",
    "node-table": "nodes",
}


def blank_row(cell: Cell, settings: Mapping[str, Any]) -> Row:
    """Return the part of a row that is known before anything was run."""
    known = {name: getattr(cell, name) for name in _FIELDS}
    known["options"] = dict(cell.options)
    return {**known, "settings": dict(settings), "error": None}


def cell_of(row: Mapping[str, Any]) -> Cell:
    """Return the cell that a row belongs to, without its panel."""
    return Cell(**{name: row[name] for name in _FIELDS})


def is_smoke(row: Mapping[str, Any]) -> bool:
    """Tell whether a row was made with a budget or on a stand-in: it is no result."""
    return row.get("on") is not None or row.get("budget") is not None


class Results:
    """The rows in the JSON files of a folder; figures and tables may share some."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {file.stem: _read_rows(file) for file in sorted(folder.glob("*.json"))}
        self.log = TrialLog(folder / "tries.jsonl")
        self.tries: list[Row] = self.log.read()
        self._index: dict[tuple[str, ...], list[Row]] = {}  #: by cell; empty: not made yet

    @property
    def rows(self) -> list[Row]:
        """All rows, of all files, and all tries."""
        return [row for rows in (*self.files.values(), self.tries) for row in rows]

    def find(self, cell: Cell, settings: Mapping[str, Any], on: str | None) -> Row | None:
        """Return the result of a cell with these settings, or with more epochs than are asked for.

        So a smoke run leaves the result of a whole run as it is. A failure is returned where there
        is no result.
        """
        failed = None
        if not self._index:
            for row in self.rows:
                self._index.setdefault(cell_of(row).identity, []).append(row)
        for row in self._index.get(cell.identity, ()):
            if row.get("on") != on:
                continue
            longer = row["settings"].get("epochs", 0) > settings.get("epochs", 0)
            if without_lengths(row["settings"], longer) == without_lengths(settings, longer):
                if not row.get("error"):
                    return row
                failed = row
        return failed

    def keep_try(self, row: Row) -> None:
        """Add a line for a try, unless it is there."""
        if row in self.tries:
            return
        self._make_folder()
        self.log.append(row)
        self.tries.append(row)
        self._index = {}

    def _make_folder(self) -> None:
        with explained_writes(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def keep(self, name: str, found: Iterable[Row]) -> Path:
        """Put rows into a file; earlier rows of the same cells go, the others stay.

        A smoke run never takes the place of a whole one, nor a failure that of a result.
        """
        good = {_slot(row) for row in self.files.get(name, []) if not row.get("error")}
        new = [row for row in found if not (row.get("error") and _slot(row) in good)]
        fresh = {_slot(row) for row in new}
        kept = [row for row in self.files.get(name, []) if _slot(row) not in fresh]
        self.files[name] = kept + new
        self._index = {}
        rows = (row if row.get("version") in _UNSEALED else sealed(row) for row in kept + new)
        lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
        self._make_folder()
        return write_text(self.folder / f"{name}.json", "[\n" + ",\n".join(lines) + "\n]\n")


def _slot(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return cell_of(row).identity, row.get("on"), row.get("budget")


def without_lengths(settings: Mapping[str, Any], longer: bool = True) -> dict[str, Any]:
    """Return settings without those that a longer run may differ in, if it is ``longer``."""
    return {
        name: without_lengths(value, longer) if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if not (longer and name in LENGTHS)
    }


def _read_rows(file: Path) -> list[Row]:
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(read, list):
            raise TypeError("no list")
        rows: list[Row] = []
        for at, row in enumerate(read, 1):
            whole = row if row.get("version") in _UNSEALED else unsealed(row)
            if whole is None:
                raise ValueError(f"row {at} was changed since it was written")
            rows.append(whole)
        return [row for row in rows if cell_of(row).identity]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        wrong = shown(f"{type(error).__name__}: {error}", 120)
        raise UserError(
            f"{file} is not a list of results ({wrong}). Restore it, or choose another folder."
        ) from error


# Beside the paper ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Beside:
    """One measure of one cell: what we found, what the paper prints."""

    measure: str
    ours: float
    spread: float | None  #: standard deviation over seeds
    paper: float | None

    @property
    def difference(self) -> float | None:
        """How much ours is above the paper's."""
        return None if self.paper is None else self.ours - self.paper

    @property
    def reached(self) -> bool:
        """Whether ours is at least the paper's, to the four digits that the paper prints."""
        return self.difference is not None and round(self.difference, 4) >= 0


def same_cell(rows: Iterable[Row]) -> list[list[Row]]:
    """Group rows that differ in their seed only, in order."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(cell_of({**row, "seed": 0}).identity, []).append(row)
    return list(groups.values())


def beside(draw: str, seeds: Sequence[Row]) -> list[Beside]:
    """Return the measures of a cell, means over its seeds, with the paper's numbers."""
    done = [row for row in seeds if not row["error"]]
    if not done:
        return []
    found, table, both = [measures(draw, row) for row in done], _PRINTED_IN.get(draw), []
    paper = printed(table, done[0]) if table else {}
    for name in found[0]:
        values = [each[name] for each in found]
        spread = statistics.stdev(values) if len(values) > 1 else None
        both.append(Beside(name, statistics.fmean(values), spread, paper.get(name)))
    return both


Compared = list[tuple[list[Row], dict[str, Beside]]]


def compared(draw: str, rows: Iterable[Row]) -> tuple[list[str], Compared]:
    """Return the names of all measures, and every cell with its own by name."""
    groups = [(group, beside(draw, group)) for group in same_cell(rows)]
    names = dict.fromkeys(each.measure for _, found in groups for each in found)
    return list(names), [(group, {x.measure: x for x in found}) for group, found in groups]


def measures(draw: str, row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers that a definition shows of a row."""
    if draw == "node-table":
        return dict(row["f1"])
    if draw == "classification-table":
        return {} if row.get("accuracy") is None else {"accuracy": row["accuracy"]}
    test = row.get("test") or {}
    return {name: test[name] for name in ("mrr", "hits@10") if name in test}
