"""Results as rows of JSON files, one file a table or figure; what is in them is done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nscaching.errors import UserError
from nscaching.experiments.paper.cells import Cell
from nscaching.experiments.paper.settings import LENGTHS
from nscaching.files import explained_writes, write_text

Row = dict[str, Any]


def blank_row(cell: Cell, settings: Mapping[str, Any]) -> Row:
    """Return the part of a row that is known before anything was run."""
    return {
        "dataset": cell.dataset,
        "scoring": cell.scoring,
        "sampler": cell.sampler,
        "mode": cell.mode,
        "options": dict(cell.options),
        "kind": cell.kind,
        "seed": cell.seed,
        "settings": dict(settings),
        "error": None,
    }


def cell_of(row: Mapping[str, Any]) -> Cell:
    """Return the cell that a row belongs to, without its panel."""
    names = ("dataset", "scoring", "sampler", "mode", "options", "seed", "kind")
    return Cell(**{name: row[name] for name in names})


def identity(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the identity of the cell that a row belongs to."""
    return cell_of(row).identity


def label_of(row: Mapping[str, Any]) -> str:
    """Return how the cell of a row is called."""
    return cell_of(row).label


class Book:
    """The rows in the JSON files of a folder; figures and tables may share some."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {file.stem: read_rows(file) for file in sorted(folder.glob("*.json"))}

    @property
    def rows(self) -> list[Row]:
        """All rows, of all files."""
        return [row for rows in self.files.values() for row in rows]

    def done(self, cell: Cell, settings: Mapping[str, Any], on: str | None) -> Row | None:
        """Return the result of a cell with these settings, or with more epochs than are asked for.

        So a smoke run leaves the result of a whole run as it is.
        """
        for row in self.rows:
            if row.get("error") or identity(row) != cell.identity or row.get("on") != on:
                continue
            longer = row["settings"].get("epochs", 0) > settings.get("epochs", 0)
            if _without_lengths(row["settings"], longer) == _without_lengths(settings, longer):
                return row
        return None

    def keep(self, name: str, rows: Iterable[Row]) -> Path:
        """Put rows into a file; earlier rows of the same cells go, the others stay.

        A smoke run never takes the place of a whole one.
        """
        new = list(rows)
        fresh = {_slot(row) for row in new}
        kept = [row for row in self.files.get(name, []) if _slot(row) not in fresh]
        self.files[name] = kept + new
        file = self.folder / f"{name}.json"
        with explained_writes(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in self.files[name])
        write_text(file, "[\n" + ",\n".join(lines) + "\n]\n")
        return file


def is_smoke(row: Mapping[str, Any]) -> bool:
    """Tell whether a row was made with a budget or on a stand-in: it is no result."""
    return row.get("on") is not None or row.get("budget") is not None


def _slot(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return identity(row), row.get("on"), row.get("budget")


def _without_lengths(settings: Mapping[str, Any], longer: bool) -> dict[str, Any]:
    return {
        name: _without_lengths(value, longer) if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if not (longer and name in LENGTHS)
    }


def read_rows(file: Path) -> list[Row]:
    """Read a file of rows."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        for row in rows:
            identity(row)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file} is not a list of results ({error!r}). Restore it, or choose another folder."
        ) from error
    return list(rows)
