"""The verb ``reproduce``: the cells of a table or figure are run, and shown beside the paper's."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nscaching._version import __version__
from nscaching.artefacts import FolderLock
from nscaching.artefacts.files import sweep_temporary
from nscaching.errors import UserError
from nscaching.experiments.paper.definitions import Cell, Definition, definition
from nscaching.experiments.paper.figures import draw
from nscaching.experiments.paper.making import node_row, search_row, train_row, variance_row
from nscaching.experiments.paper.plan import (
    MISSING,
    Planned,
    Request,
    Sources,
    plan,
    run_folder,
    slowness,
)
from nscaching.experiments.paper.results import Results, Row, blank_row
from nscaching.experiments.runner import DONE, Sweep, run_all
from nscaching.training import Progress
from nscaching.training.benchmarking import describe_machine
from nscaching.training.devices import pick_device
from nscaching.training.progress import duration


@dataclass(frozen=True)
class Reproduction:
    """A table or figure with what was found for it."""

    definition: Definition
    out: Path
    plan: list[Planned]
    rows: list[Row]
    file: Path | None = None
    pictures: tuple[Path, ...] = ()
    timed_here: bool = False  #: whether cells timed on this machine correct what is expected

    @property
    def expected_seconds(self) -> float:
        """How long the plan was expected to take."""
        return sum(planned.seconds for planned in self.plan)

    @property
    def caveat(self) -> str:
        """How far to trust the expected time, to be said after it."""
        rough = self.expected_seconds > 0 and not self.timed_here
        return " (rough: no cell was timed on this machine yet)" if rough else ""

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "name": self.definition.name,
            "title": self.definition.title,
            "label": self.definition.label,
            "out": str(self.out),
            "expected_seconds": round(self.expected_seconds, 1),
            "timed_here": self.timed_here,
            "plan": [planned.as_dict() for planned in self.plan],
            "rows": self.rows,
            "file": str(self.file) if self.file else None,
            "pictures": [str(picture) for picture in self.pictures],
        }


def reproduce(
    name: str,
    request: Request,
    *,
    dry_run: bool = False,
    finished: bool = False,
    progress: Progress | str = "auto",
) -> Reproduction:
    """Run what a table or figure of the paper needs and return its rows.

    ``dry_run`` only plans; ``finished`` runs nothing and takes the cells that have a row already.
    """
    shown = progress if isinstance(progress, Progress) else Progress(progress)
    wanted = definition(name)
    cells = wanted.cells(**request.filters, seeds=request.seeds)
    results, sources = Results(request.out), Sources(request.on)
    planned = plan(cells, request, results, sources)
    if finished:
        planned = [each for each in planned if each.state == DONE]
        done = {each.cell.identity for each in planned}
        cells = [cell for cell in cells if cell.identity in done]  # panels may share some
        if not cells:
            raise UserError(f"No cell of {name} is finished in {request.out}.")
    hardware = describe_machine(pick_device(request.device).type)
    timed = slowness(results.rows, hardware, request.on) is not None
    made = Reproduction(wanted, request.out, planned, [], timed_here=timed)
    if dry_run:
        return made
    _announce(made, shown)
    with _locked(request.out):
        results = Results(request.out)  # another command may have added to them
        sweep = CellSweep(name, planned, request, results, sources, hardware, shown)
        run_all(sweep)
        rows = list(sweep.records.values())
        pictures = tuple(draw(wanted, cells, rows, made.out))
    return replace(made, rows=rows, file=sweep.file, pictures=pictures)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder of results; remove what a killed process left half written."""
    lock = FolderLock(folder)
    lock.acquire()
    try:
        for written in ("*.json", "*.svg"):
            sweep_temporary(folder, written)
        yield
    finally:
        lock.release()


def _announce(made: Reproduction, shown: Progress) -> None:
    waiting = [planned for planned in made.plan if planned.seconds]
    done = len(made.plan) - len(waiting)
    shown.say(
        f"{made.definition.name}: {len(made.plan)} cells, {done} of them done or without data; "
        f"about {duration(made.expected_seconds)} for the rest{made.caveat}."
    )
    for planned in waiting:
        shown.say(f"  {planned.title} ({duration(planned.seconds)})")


class CellSweep(Sweep[Planned]):
    """The cells of one table or figure."""

    noun = "cell"

    def __init__(
        self,
        name: str,
        planned: list[Planned],
        request: Request,
        results: Results,
        sources: Sources,
        hardware: dict[str, Any],
        progress: Progress,
    ) -> None:
        super().__init__(planned, progress)
        self.name, self.request, self.results = name, request, results
        self.sources, self.hardware = sources, hardware
        self.resume_command = _command(name, request)
        self.file: Path | None = None

    def _known(self, planned: Planned) -> Row | None:
        row = self.results.find(planned.cell, planned.settings, self.request.on)
        return None if row is None or row.get("error") else row

    def _train(self, planned: Planned) -> Row:
        return self._blank(planned) | self._found(planned.cell, planned.settings)

    def _found(self, cell: Cell, settings: dict[str, Any]) -> Row:
        if cell.kind == "nodes":
            return node_row(cell, settings, self.sources.nodes(cell.dataset), self.progress)
        settings = {**settings, "device": self.request.device}
        graph, folder = self.sources.graph(cell.dataset), run_folder(self.request, cell)
        if cell.kind == "variance":
            return variance_row(settings, graph, self.progress)
        if cell.kind == "search":
            return search_row(cell, settings, graph, folder, self.progress)
        stands_in = self.request.on is not None
        return train_row(cell, settings, graph, folder, self.progress, standing_in=stands_in)

    def _failed(self, planned: Planned, reason: str) -> Row:
        missing = planned.state == MISSING
        return self._blank(planned) | {"error": reason, "missing": missing}

    def _seconds(self, planned: Planned) -> float | None:
        if not planned.seconds:
            return 0.0
        factor = slowness(self.results.rows, self.hardware, self.request.on) or 1.0
        return planned.model_seconds * factor

    def _keep(self, planned: Planned, record: Row) -> None:
        self.file = self.results.keep(self.name, self.records.values())

    def _blank(self, planned: Planned) -> Row:
        row = blank_row(planned.cell, planned.settings)
        row |= {"on": self.request.on, "budget": self.request.budget, "missing": False}
        row["expected_seconds"] = planned.model_seconds
        return row | {"version": __version__, "hardware": self.hardware}


def _command(name: str, request: Request) -> str:
    """Return the command that asks for the same again."""
    asked: list[tuple[str, Any]] = [
        (name.rstrip("s"), each) for name, names in request.filters.items() for each in names
    ]
    asked.append(("seeds", ",".join(map(str, request.seeds))))
    others = ("budget", "trials", "on", "device", "out")
    asked += [(name, getattr(request, name)) for name in others]
    flags = [
        word for flag, value in asked if value is not None for word in (f"--{flag}", str(value))
    ]
    return shlex.join(["nscaching", "reproduce", name, *flags])
