"""The folder of a search.

``search.yaml`` says what was asked for, ``base/`` holds the graph and the options all trials begin
with, ``trials.jsonl`` is the trial log, ``trials/NNN/`` are the trials: ordinary run folders, or
the scores of embeddings of nodes. ``best.yaml`` is there from the first finished trial on;
``trials.csv``, ``result.json`` and the pictures are the outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from nscaching.artefacts import MARKER, ArtefactFolder
from nscaching.artefacts.files import find_foreign, write_text
from nscaching.errors import CHOOSE_ANOTHER, UserError
from nscaching.experiments.tune.settings import AnyOptions, read_options
from nscaching.experiments.tune.trials import SearchLog
from nscaching.training.config import read_yaml

#: Every key that ``search.yaml`` has had since the first version.
_KEYS = {"trials", "method", "space", "planned_trials", "fixed"}
#: Files of a run or of an embedding of nodes, which are what trials are.
_TRIAL = [
    MARKER,
    "config.yaml",
    "entities.txt",
    "relations.txt",
    "nodes.txt",
    "graph.safetensors",
    "model.safetensors",
    "metrics.jsonl",
    "trace.jsonl",
    "summary.json",
    "report.html",
    "checkpoint/state.safetensors",
]
#: All that a search writes, as patterns below its folder.
_OWN = (
    *("search.yaml", "trials.jsonl", "best.yaml", "trials.csv", "result.json", "report.html"),
    *("curve.svg", "importance.svg"),
    *("curve.png", "importance.png"),  # of earlier versions
    *(f"smac/[0-9]*/{name}.json" for name in ("configspace", "intensifier", "optimization")),
    *(f"smac/[0-9]*/{name}.json" for name in ("runhistory", "scenario")),
    *(f"base/{name}" for name in _TRIAL),
    *(f"trials/[0-9]*/{name}" for name in _TRIAL),
    "trials/[0-9]*/seeds.jsonl",
)


def base_folder(search: Path) -> Path:
    """Return where the graph and the options are that all trials begin with."""
    return search / "base"


class SearchFolder(ArtefactFolder):
    """The files of one search."""

    kind = "search"
    what = "a search"
    otherwise = "holds no search"
    own = _OWN

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.settings = self.path / "search.yaml"
        self.base = base_folder(self.path)
        self.log = SearchLog(self.path / "trials.jsonl")
        self.trials = self.path / "trials"
        self.best = self.path / "best.yaml"
        self.table = self.path / "trials.csv"
        self.result = self.path / "result.json"

    def looks_like_one(self) -> bool:
        """Tell whether a search was begun here."""
        if not self.settings.is_file() or not (self.base / "config.yaml").is_file():
            return False
        try:
            return read_yaml(self.settings).keys() >= _KEYS
        except UserError:
            return False

    def is_search(self) -> bool:
        """Tell whether a search was begun here."""
        return self.holds_one()

    def refuse_occupied(self, overwrite: bool) -> None:
        """Refuse a folder that holds something else, or a search that is not to be replaced."""
        begun = self.is_search()
        replaced = overwrite or (begun and not self.log.path.exists())
        foreign = find_foreign(self.path, self.own) if begun and replaced else None
        if foreign is not None:
            raise UserError(
                f"{foreign} is no file of a search, so {self.path} is not replaced. Move it "
                f"away, or {CHOOSE_ANOTHER}"
            )
        super().refuse_occupied(replaced)

    def create(
        self, options: AnyOptions, fixed: dict[str, Any], write_base: Callable[[Path], None]
    ) -> None:
        """Begin a search; the files of an earlier one here are removed, by name.

        The first number of trials shapes the initial design, so it is kept beside the present one.
        """
        record = {**options.as_dict(), "planned_trials": options.trials, "fixed": fixed}
        record["first"] = "base"
        with self.replacing(marker={}) as new:
            write_base(base_folder(new))
            write_text(
                new / self.settings.name,
                yaml.safe_dump(record, sort_keys=False, allow_unicode=True),
            )

    def read(self) -> tuple[AnyOptions, dict[str, Any], int]:
        """Return the options of the search, the fixed training options and the planned trials."""
        if not self.settings.is_file():
            raise UserError(
                f"{self.path} holds no search to resume. Start one with 'nscaching tune DATA --out "
                f"{self.path}'."
            )
        record = read_yaml(self.settings)
        record.pop("first", None)
        fixed, planned = record.pop("fixed", {}), record.pop("planned_trials", 0)
        options = read_options(record, str(self.settings))
        if not isinstance(fixed, dict) or not isinstance(planned, int):
            raise UserError(f"{self.settings} is damaged; restore it, or begin the search again.")
        return options, fixed, planned

    def starts_at_the_paper(self) -> bool:
        """Tell whether the first trial is the paper's, as in searches of the first version."""
        return "first" not in read_yaml(self.settings)
