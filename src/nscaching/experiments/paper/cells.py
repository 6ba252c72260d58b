"""Cells, the runs that a table or a figure needs, and their results: rows of JSON files.

There is one file per table or figure. It is the trial log of a reproduction: a list with one record
per finished cell, one per line. What is in it is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nscaching.errors import UserError
from nscaching.experiments.runner import write_records

Row = dict[str, Any]
#: Options that count epochs; a budget shortens them.
LENGTHS = ("epochs", "valid_every", "trace_every", "pretrain_epochs", "generator_epochs")
_FIELDS = ("dataset", "scoring", "sampler", "mode", "options", "seed", "kind")


@dataclass(frozen=True)
class Cell:
    """One number of a table, or one line of a figure, for one seed."""

    dataset: str
    scoring: str | None  #: None for graphs without relations
    sampler: str
    mode: str = "scratch"
    options: Mapping[str, Any] = field(default_factory=dict)  #: what differs from the settings
    seed: int = 0
    kind: str = "train"  #: train, search, nodes or variance
    panel: str = ""  #: part of the figure

    @property
    def identity(self) -> tuple[str, ...]:
        """What a result belongs to; two figures may share one."""
        own = json.dumps(dict(self.options), sort_keys=True)
        scoring = self.scoring or ""
        return self.kind, self.dataset, scoring, self.sampler, self.mode, own, str(self.seed)

    @property
    def label(self) -> str:
        """How a row or a line is called."""
        shown = {k: v for k, v in self.options.items() if not k.startswith("trace")}
        own = [f"{name}={value}" for name, value in shown.items()]
        mode = [] if self.mode == "scratch" else [self.mode]
        return ", ".join([self.sampler, *mode, *own])

    @property
    def folder(self) -> str:
        """Return the name of its run folder."""
        own = [f"{name}={value}" for name, value in sorted(self.options.items())]
        parts = [self.dataset, self.scoring or "nodes", self.sampler, self.mode, *own]
        if self.kind != "train":
            parts.append(self.kind)
        return re.sub(r"[^A-Za-z0-9=.+_-]+", "-", "-".join(parts)) + f"-seed{self.seed}"


def blank_row(cell: Cell, settings: Mapping[str, Any]) -> Row:
    """Return the part of a row that is known before anything was run."""
    known = {name: getattr(cell, name) for name in _FIELDS}
    known["options"] = dict(cell.options)
    return {**known, "settings": dict(settings), "error": None}


def cell_of(row: Mapping[str, Any]) -> Cell:
    """Return the cell that a row belongs to, without its panel."""
    return Cell(**{name: row[name] for name in _FIELDS})


def identity(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the identity of the cell that a row belongs to."""
    return cell_of(row).identity


def is_smoke(row: Mapping[str, Any]) -> bool:
    """Tell whether a row was made with a budget or on a stand-in: it is no result."""
    return row.get("on") is not None or row.get("budget") is not None


class Results:
    """The rows in the JSON files of a folder; figures and tables may share some."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {file.stem: _read_rows(file) for file in sorted(folder.glob("*.json"))}

    @property
    def rows(self) -> list[Row]:
        """All rows, of all files."""
        return [row for rows in self.files.values() for row in rows]

    def find(self, cell: Cell, settings: Mapping[str, Any], on: str | None) -> Row | None:
        """Return the result of a cell with these settings, or with more epochs than are asked for.

        So a smoke run leaves the result of a whole run as it is. A failure is returned where there
        is no result.
        """
        failed = None
        for row in self.rows:
            if identity(row) != cell.identity or row.get("on") != on:
                continue
            longer = row["settings"].get("epochs", 0) > settings.get("epochs", 0)
            if _without_lengths(row["settings"], longer) == _without_lengths(settings, longer):
                if not row.get("error"):
                    return row
                failed = row
        return failed

    def keep(self, name: str, rows: Iterable[Row]) -> Path:
        """Put rows into a file; earlier rows of the same cells go, the others stay.

        A smoke run never takes the place of a whole one.
        """
        new = list(rows)
        fresh = {_slot(row) for row in new}
        kept = [row for row in self.files.get(name, []) if _slot(row) not in fresh]
        self.files[name] = kept + new
        file = self.folder / f"{name}.json"
        write_records(file, self.files[name])
        return file


def _slot(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return identity(row), row.get("on"), row.get("budget")


def _without_lengths(settings: Mapping[str, Any], longer: bool) -> dict[str, Any]:
    return {
        name: _without_lengths(value, longer) if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if not (longer and name in LENGTHS)
    }


def _read_rows(file: Path) -> list[Row]:
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        for row in rows:
            identity(row)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file} is not a list of results ({error!r}). Restore it, or choose another folder."
        ) from error
    return list(rows)
