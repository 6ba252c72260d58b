"""A CSV file with the columns epoch, split, metric, value: for a spreadsheet or a data frame."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from nscaching.errors import UserError
from nscaching.files import explained_writes, write_text
from nscaching.interop.tracking.base import RunStart, Tracker

HEADER = ("epoch", "split", "metric", "value")


class CsvTracker(Tracker):
    """Adds lines as they come; a run that goes on is cut back to where it stopped."""

    def __init__(self, target: str) -> None:
        self.path = Path(target).expanduser()
        if self.path.is_dir():
            raise UserError(f"{self.path} is a folder; csv: takes the name of a file.")

    def on_start(self, start: RunStart) -> None:
        """Write the header, and what an earlier part of the run had written."""
        with explained_writes(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, _text([HEADER, *self._kept(start.epochs_done)]))

    def _kept(self, epochs_done: int) -> list[list[str]]:
        if epochs_done == 0 or not self.path.exists():
            return []
        with self.path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) == len(HEADER)]
        return [row for row in rows if row[0].isdigit() and int(row[0]) <= epochs_done]

    def on_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """Add a line for each value, under the split ``train``."""
        self._append(epoch, "train", values)

    def on_evaluation(self, epoch: int, split: str, values: Mapping[str, float]) -> None:
        """Add a line for each metric."""
        self._append(epoch, split, values)

    def _append(self, epoch: int, split: str, values: Mapping[str, float]) -> None:
        lines = _text((epoch, split, name, repr(value)) for name, value in values.items())
        with explained_writes(self.path), self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(lines)


def _text(rows: Iterable[Iterable[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()
