"""What a reproduction will do, said in advance: which cells, what is done, how long it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nscaching.experiments.paper.cells import Cell
from nscaching.experiments.paper.costs import Sizes, correction, expected_seconds
from nscaching.experiments.paper.rows import Book
from nscaching.experiments.paper.settings import settings_of
from nscaching.experiments.paper.sources import Sources
from nscaching.training.benchmarking import describe_machine
from nscaching.training.devices import pick_device

#: Trials of a search, as in the paper.
USUAL_TRIALS = 50

DONE, STOPPED, NEW, MISSING = "done", "stopped", "new", "data not at hand"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for, besides the name of the table or figure."""

    out: Path
    datasets: Sequence[str] = ()
    scoring: Sequence[str] = ()
    samplers: Sequence[str] = ()
    modes: Sequence[str] = ()
    seeds: Sequence[int] = (0,)
    budget: int | None = None  #: epochs at most, for a smoke run
    trials: int | None = None  #: of a search
    device: str = "auto"
    on: str | None = None  #: a graph that stands in for the data sets


@dataclass(frozen=True)
class Planned:
    """A cell, where it stands, and the seconds it is expected to take."""

    cell: Cell
    settings: dict[str, Any]
    state: str
    model_seconds: float  #: by the stored costs
    seconds: float  #: corrected by what was timed on this machine; 0 for what is done

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        place = {"dataset": self.cell.dataset, "scoring": self.cell.scoring}
        return {
            **place,
            "row": self.cell.label,
            "seed": self.cell.seed,
            "state": self.state,
            "seconds": round(self.seconds, 1),
        }


def plan(cells: Sequence[Cell], request: Request, book: Book, sources: Sources) -> list[Planned]:
    """Return the cells once each, with their settings, state and expected time."""
    device = pick_device(request.device)
    factor = correction(book.rows, describe_machine(device.type), request.on)
    unique = {cell.identity: cell for cell in reversed(cells)}
    ordered = [cell for cell in cells if unique[cell.identity] is cell]
    planned = []
    for cell in ordered:
        settings = cell_settings(cell, request)
        sizes = Sizes.of("world" if request.on == "world" else cell.dataset, sources.scale or 1)
        seconds = expected_seconds(cell, settings, sizes, device.type)
        state = _state(cell, settings, request, book, sources)
        left = seconds * factor if state in (NEW, STOPPED) else 0.0
        planned.append(Planned(cell, settings, state, seconds, left))
    return planned


def cell_settings(cell: Cell, request: Request) -> dict[str, Any]:
    """Return the options that a row is known by."""
    if cell.kind == "nodes":
        return {} if request.budget is None else {"epochs": request.budget}
    settings = settings_of(cell, request.budget)
    if cell.kind == "search":
        settings["trials"] = request.trials or settings.get("trials", USUAL_TRIALS)
    return settings


def run_folder(request: Request, cell: Cell) -> Path:
    """Return where a cell is trained; version control leaves folders called runs alone.

    Smoke runs have a place of their own: a whole run could not go on from one.
    """
    smoke = [] if request.on is None else [f"on-{request.on.replace('/', '-').strip('-.')}"]
    smoke += [] if request.budget is None else [f"budget-{request.budget}"]
    return request.out / "runs" / "-".join(smoke) / cell.folder


def _state(
    cell: Cell, settings: Mapping[str, Any], request: Request, book: Book, sources: Sources
) -> str:
    if book.done(cell, settings, request.on) is not None:
        return DONE
    if not sources.at_hand(cell.dataset):
        return MISSING
    return STOPPED if run_folder(request, cell).exists() else NEW
