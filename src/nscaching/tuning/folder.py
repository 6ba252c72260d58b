"""The folder of a search.

``search.yaml`` says what was asked for, ``base/`` holds the graph and the options all trials begin
with, ``trials.jsonl`` is the book, ``trials/NNN/`` are the trials: ordinary run folders, or the
scores of embeddings of nodes. ``best.yaml``, ``trials.csv``, ``result.json`` and the
pictures are the outcome.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from nscaching.errors import CHOOSE_ANOTHER, GO_ON_OR_REPLACE, UserError
from nscaching.files import explained_writes, write_text
from nscaching.training.config import read_yaml
from nscaching.tuning.journal import Journal
from nscaching.tuning.settings import SearchOptions, read_options


def base_folder(search: Path) -> Path:
    """Return where the graph and the options are that all trials begin with."""
    return search / "base"


class SearchFolder:
    """The files of one search."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.settings = self.path / "search.yaml"
        self.base = base_folder(self.path)
        self.journal = Journal(self.path / "trials.jsonl")
        self.trials = self.path / "trials"
        self.best = self.path / "best.yaml"
        self.table = self.path / "trials.csv"
        self.result = self.path / "result.json"

    def is_search(self) -> bool:
        """Tell whether a search was begun here; ``search.yaml`` is written last."""
        return self.settings.is_file()

    def refuse_occupied(self, overwrite: bool) -> None:
        """Refuse a folder that holds something else, or a search that is not to be replaced."""
        if not self.path.exists():
            return
        if self.is_search():
            if not overwrite and self.journal.path.exists():  # else nothing was trained yet
                raise UserError(f"{self.path} holds a search already. {GO_ON_OR_REPLACE}")
        elif not self.path.is_dir() or any(each != self.base for each in self.path.iterdir()):
            raise UserError(f"{self.path} exists and holds no search; {CHOOSE_ANOTHER}")

    def create(self, record: dict[str, Any], write_base: Callable[[Path], None]) -> None:
        """Begin a search; an earlier one here is removed."""
        with explained_writes(self.path):
            if self.is_search():
                self.settings.unlink()
                shutil.rmtree(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
        write_base(self.base)
        write_text(self.settings, yaml.safe_dump(record, sort_keys=False, allow_unicode=True))

    def read(self) -> tuple[SearchOptions, dict[str, Any], int]:
        """Return the options of the search, the fixed training options and the planned trials."""
        if not self.is_search():
            raise UserError(
                f"{self.path} holds no search to resume. Start one with 'nscaching tune DATA --out "
                f"{self.path}'."
            )
        record = read_yaml(self.settings)
        fixed, planned = record.pop("fixed", {}), record.pop("planned_trials", 0)
        options = read_options(record, str(self.settings))
        if not isinstance(fixed, dict) or not isinstance(planned, int):
            raise UserError(f"{self.settings} is damaged; restore it, or begin the search again.")
        return options, fixed, planned
