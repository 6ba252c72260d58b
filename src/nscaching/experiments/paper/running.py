"""Running the cells of a table or figure: what is done is skipped, what was stopped goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nscaching._version import __version__
from nscaching.errors import NSCachingError, TrainingInterrupted, UserError
from nscaching.experiments.paper.cells import Cell
from nscaching.experiments.paper.costs import correction, timed_here
from nscaching.experiments.paper.definitions import Definition, definition
from nscaching.experiments.paper.figures import draw
from nscaching.experiments.paper.node_rows import node_row
from nscaching.experiments.paper.planning import DONE, MISSING, Planned, Request, plan, run_folder
from nscaching.experiments.paper.rows import Book, Row, blank_row
from nscaching.experiments.paper.searching import search_row
from nscaching.experiments.paper.sources import Sources
from nscaching.experiments.paper.training import train_row
from nscaching.experiments.paper.variance import variance_row
from nscaching.training import Progress
from nscaching.training.benchmarking import describe_machine
from nscaching.training.devices import pick_device
from nscaching.training.progress import duration

#: What makes the row of a cell of each kind.
Maker = Callable[[Planned, Request, Sources, Progress], Row]


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
    cells = wanted.cells(
        datasets=request.datasets,
        scoring=request.scoring,
        samplers=request.samplers,
        modes=request.modes,
        seeds=request.seeds,
    )
    book, sources = Book(request.out), Sources(request.on)
    planned = plan(cells, request, book, sources)
    if finished:
        planned = [each for each in planned if each.state == DONE]
        done = {each.cell.identity for each in planned}
        cells = [cell for cell in cells if cell.identity in done]  # panels may share some
        if not cells:
            raise UserError(f"No cell of {name} is finished in {request.out}.")
    hardware = describe_machine(pick_device(request.device).type)
    timed = timed_here(book.rows, hardware, request.on)
    made = Reproduction(wanted, request.out, planned, [], timed_here=timed)
    if dry_run:
        return made
    _announce(made, shown)
    rows, file = _run(made, request, book, sources, shown)
    return _drawn(replace(made, rows=rows, file=file), cells)


def _announce(made: Reproduction, shown: Progress) -> None:
    waiting = [planned for planned in made.plan if planned.seconds]
    done = len(made.plan) - len(waiting)
    shown.say(
        f"{made.definition.name}: {len(made.plan)} cells, {done} of them done or without data; "
        f"about {duration(made.expected_seconds)} for the rest{made.caveat}."
    )
    for planned in waiting:
        cell = planned.cell
        place = f"{cell.dataset} {cell.scoring or ''}".strip()
        shown.say(f"  {place}: {cell.label}, seed {cell.seed} ({duration(planned.seconds)})")


def _run(
    made: Reproduction, request: Request, book: Book, sources: Sources, shown: Progress
) -> tuple[list[Row], Path | None]:
    rows: list[Row] = []
    file: Path | None = None
    hardware = describe_machine(pick_device(request.device).type)
    try:
        for place, planned in enumerate(made.plan):
            known = book.done(planned.cell, planned.settings, request.on)
            if known is None:
                factor = correction(book.rows, hardware, request.on)
                ahead = [p for p in made.plan[place:] if p.seconds]
                left = sum(p.model_seconds for p in ahead) * factor
                shown.say(
                    f"Cell {place + 1} of {len(made.plan)}: {planned.cell.dataset}, "
                    f"{planned.cell.label} (about {duration(left)} left for all)"
                )
                known = _row(planned, request, sources, shown, hardware)
            rows.append(known)
            file = book.keep(made.definition.name, rows)
    except (TrainingInterrupted, KeyboardInterrupt) as error:
        raise TrainingInterrupted(
            f"Stopped with {len(rows)} of {len(made.plan)} cells finished; everything is kept. "
            "Give the same command again to go on."
        ) from error
    return rows, file


def _row(
    planned: Planned, request: Request, sources: Sources, shown: Progress, hardware: dict[str, Any]
) -> Row:
    cell = planned.cell
    row = blank_row(cell, planned.settings)
    row |= {
        "on": request.on,
        "budget": request.budget,
        "missing": False,
        "expected_seconds": planned.model_seconds,
    }
    row |= {"version": __version__, "hardware": hardware}
    try:
        return row | _MAKERS[cell.kind](planned, request, sources, shown)
    except TrainingInterrupted:
        raise
    except (NSCachingError, MemoryError, RuntimeError) as error:
        missing = planned.state == MISSING and isinstance(error, UserError)
        shown.say(f"{cell.dataset}, {cell.label}: {error}")
        return row | {"error": str(error) or "out of memory", "missing": missing}


def _trained(planned: Planned, request: Request, sources: Sources, shown: Progress) -> Row:
    return train_row(
        planned.cell,
        {**planned.settings, "device": request.device},
        sources.graph(planned.cell.dataset),
        run_folder(request, planned.cell),
        shown,
        standing_in=request.on is not None,
    )


def _searched(planned: Planned, request: Request, sources: Sources, shown: Progress) -> Row:
    return search_row(
        planned.cell,
        {**planned.settings, "device": request.device},
        sources.graph(planned.cell.dataset),
        run_folder(request, planned.cell),
        shown,
    )


def _variance(planned: Planned, request: Request, sources: Sources, shown: Progress) -> Row:
    settings = {**planned.settings, "device": request.device}
    return variance_row(settings, sources.graph(planned.cell.dataset), shown)


def _nodes(planned: Planned, request: Request, sources: Sources, shown: Progress) -> Row:
    graph = sources.nodes(planned.cell.dataset)
    return node_row(planned.cell, planned.settings, graph, shown)


_MAKERS: dict[str, Maker] = {
    "train": _trained,
    "search": _searched,
    "variance": _variance,
    "nodes": _nodes,
}


def _drawn(made: Reproduction, cells: list[Cell]) -> Reproduction:
    """Draw what is a figure."""
    return replace(made, pictures=tuple(draw(made.definition, cells, made.rows, made.out)))
