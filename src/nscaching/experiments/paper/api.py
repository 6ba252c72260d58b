"""The verb ``reproduce``: the cells of a table or figure are run, and shown beside the paper's."""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nscaching._version import __version__
from nscaching.artefacts import FolderLock
from nscaching.artefacts.files import append_json_line, sweep_temporary
from nscaching.errors import UserError, plural
from nscaching.experiments.paper import making
from nscaching.experiments.paper.definitions import TRY, TUNED, Definition, definition, shortened
from nscaching.experiments.paper.expected import last_end, slowness
from nscaching.experiments.paper.figures import draw
from nscaching.experiments.paper.gains import rank_file
from nscaching.experiments.paper.plan import (
    MISSING,
    Planned,
    Request,
    plan,
    run_folder,
)
from nscaching.experiments.paper.results import Results, Row, blank_row, without_lengths
from nscaching.experiments.paper.tries import (
    chosen_settings,
    expanded,
    node_try_row,
    settings_name,
    tried,
    try_row,
)
from nscaching.experiments.runner import DONE, Sweep, run_all
from nscaching.experiments.workers import processes
from nscaching.report.markup import command_line
from nscaching.training import Progress
from nscaching.training.benchmarking import describe_machine
from nscaching.training.devices import pick_device
from nscaching.training.progress import duration

#: A try that takes so many seconds keeps checkpoints, so that it can be resumed.
LONG = 300.0


@dataclass
class Reproduction:
    """A table or figure with what was found for it."""

    definition: Definition
    request: Request
    plan: list[Planned]
    timed_here: bool = False  #: whether cells timed on this machine correct what is expected
    rows: list[Row] = field(default_factory=list)
    file: Path | None = None
    pictures: tuple[Path, ...] = ()
    seconds: float = 0.0  #: that it took

    @property
    def expected_seconds(self) -> float:
        """How long the plan was expected to take."""
        return last_end((planned.seconds for planned in self.plan), self.request.workers)

    @property
    def caveat(self) -> str:
        """How far to trust the expected time, to be said after it."""
        most = last_end((planned.at_most for planned in self.plan), self.request.workers)
        if most > 1.01 * self.expected_seconds:
            return f" (at most {duration(most)}, if nothing stops early)"
        rough = self.expected_seconds > 0 and not self.timed_here
        return " (rough: no cell was timed on this machine yet)" if rough else ""

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "name": self.definition.name,
            "title": self.definition.title,
            "label": self.definition.label,
            "out": str(self.request.out),
            "expected_seconds": round(self.expected_seconds, 1),
            "seconds": round(self.seconds, 1),
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
    if request.tries is not None:
        cells = list(expanded(wanted, cells, request.tries))
    making.loaded.cache_clear()
    results = Results(request.out)
    planned = plan(cells, request, results, None if finished else shown.say)
    if finished:
        planned = [each for each in planned if each.state == DONE and not each.cell.is_try]
        done = {each.cell.identity for each in planned}
        cells = [cell for cell in cells if cell.identity in done]  # panels may share some
        if not cells:
            raise UserError(f"No cell of {name} is finished in {request.out}.")
    hardware = describe_machine(pick_device(request.device).type)
    timed = slowness(results.rows, hardware, request.workers, request.on) is not None
    made = Reproduction(wanted, request, planned, timed)
    if dry_run:
        return made
    _announce(made, shown)
    with contextlib.ExitStack() as held:
        lock = FolderLock(request.out)
        lock.acquire()
        held.callback(lock.release)
        for written in ("*.json", "*.svg"):  # what a killed process left half written
            sweep_temporary(request.out, written)
        sweep = CellSweep(made, hardware, shown)
        with processes(sweep.make, request.workers) as pool:
            run_all(sweep, pool)
        made.rows = sweep.rows()
        made.pictures = tuple(draw(wanted, cells, made.rows, request.out))
    made.seconds = sweep.seconds
    if made.expected_seconds:
        sweep.say_time()
    return made


def _announce(made: Reproduction, shown: Progress) -> None:
    waiting = [planned for planned in made.plan if planned.seconds]
    tries = any(each.cell.is_try for each in made.plan)
    said = f"{len(made.plan):,} tries and cells" if tries else plural(len(made.plan), "cell")
    shown.say(
        f"{made.definition.name}: {said}, {len(made.plan) - len(waiting)} of them done or without "
        f"data; about {duration(made.expected_seconds)} for the rest{made.caveat}."
    )
    for planned in waiting:
        if not planned.cell.is_try and not planned.cell.is_chosen:
            shown.say(f"  {planned.title} ({duration(planned.seconds)})")


def blank_of(request: Request, hardware: dict[str, Any], planned: Planned) -> Row:
    """Return what a row has of a cell whatever comes of it."""
    row = blank_row(planned.cell, planned.settings)
    row |= {"on": request.on, "budget": request.budget, "missing": False}
    row |= {"expected_seconds": planned.cost.seconds(1.0), "workers": request.workers}
    return row | {"version": __version__, "hardware": hardware}


def make_row(request: Request, hardware: dict[str, Any], style: str, planned: Planned) -> Row:
    """Make the row of a cell, here or on a worker; ``style`` is how progress is shown."""
    started = time.monotonic()
    found = _found(request, planned, Progress(style))
    wall = {"wall": time.monotonic() - started}
    return blank_of(request, hardware, planned) | found | wall


def _found(request: Request, planned: Planned, progress: Progress) -> Row:
    cell, settings, on = planned.cell, planned.settings, request.on
    best: Row = {}
    if cell.is_chosen:
        settings = shortened(chosen_settings(cell, planned.tries), request.budget)
        best = {"chosen": settings}
        best |= {"tried": tried(cell, planned.tries)} if cell.kind == TUNED else {}
    if cell.scoring is None:
        nodes = making.nodes_of(cell.dataset, on)
        if cell.kind == TRY:
            return node_try_row(cell, settings, nodes)
        settings = {name: value for name, value in settings.items() if name != "seed"}
        return best | making.node_row(cell, settings, nodes, progress)
    lasting = without_lengths(settings)  # a run may be prolonged; with other settings it is another
    # Whatever the recipe, all of valid is ranked, as in the paper.
    settings = {**settings, "device": request.device, "valid_facts": None}
    graph, folder = making.graph_of(cell.dataset, on), run_folder(request, cell)
    if cell.kind == "search":
        return making.search_row(cell, settings, graph, folder, progress)
    folder = folder / f"of-{settings_name(settings if cell.kind == TUNED else lasting)}"
    if cell.is_try:
        kept_in = folder if planned.seconds > LONG else None
        return best | try_row(settings, graph, kept_in, progress)
    if cell.kind == "variance":
        return making.variance_row(settings, graph, progress)
    ranks = None
    if cell.kind == TUNED:
        smoke = on is not None or request.budget is not None
        ranks = None if smoke else rank_file(request.out, cell)
    options = making.named_traces(settings, graph, on is not None)
    return best | making.train_row(cell, options, graph, folder, progress, ranks)


class CellSweep(Sweep[Planned, Row]):
    """The cells of one table or figure; tries come before the cells that they are for."""

    noun = "cell"

    def __init__(self, made: Reproduction, hardware: dict[str, Any], progress: Progress) -> None:
        super().__init__(made.plan, progress)
        self.made, self.request, self.hardware = made, made.request, hardware
        self.results = Results(self.request.out)  # another command may have added to them
        if self.request.tries:
            self.results.log.repair()
        style = progress.style if self.request.workers == 1 else "none"
        self.make = functools.partial(make_row, self.request, hardware, style)
        given = self.request.as_dict()
        seeds = {"seeds": ",".join(map(str, given.pop("seeds")))}
        verb = f"reproduce {made.definition.name}"
        self.resume_command = command_line(verb, given, [Request], seeds)
        self._started = time.monotonic()
        self._factor = 1.0  #: how much longer runs took so far than was expected of them
        self._of: dict[Any, list[Planned]] = {}  #: tries, by the cell that they are for
        for each in made.plan:
            if each.cell.is_try:
                self._of.setdefault(each.tuned, []).append(each)

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._started

    def say_time(self) -> None:
        """Say how long it took, and keep it beside what was expected."""
        name, took, expected = self.made.definition.name, self.seconds, self.made.expected_seconds
        said = f"{name}: {self.finished} of {self.total} finished after {duration(took)}; "
        said += f"{duration(expected)} had been expected for all."
        if self.finished < self.total:
            said += f" Resume with:\n  {self.resume_command}"
        self.progress.say(said)
        line = {"name": name, "version": __version__, "workers": self.request.workers}
        line |= {"expected_seconds": round(expected, 1), "seconds": round(took, 1)}
        line |= {"finished": self.finished, "of": self.total, "gpu": self.hardware["gpu"]}
        append_json_line(self.request.out / "times.jsonl", line)

    def rows(self) -> list[Row]:
        """Return the rows in the order of the definition, without tries."""
        kept = (each.identity for each in self.configurations if not each.cell.is_try)
        return [self.records[identity] for identity in kept if identity in self.records]

    def _known(self, planned: Planned) -> Row | None:
        row = self.results.find(planned.cell, planned.settings, self.request.on)
        return None if row is None or row.get("error") else row

    def _tries(self, planned: Planned) -> list[str]:
        """Return the tries that a longer one or a tuned cell is chosen from."""
        if not planned.cell.is_chosen:
            return []
        every = self._of.get(planned.tuned, [])
        return [x.identity for x in every if planned.cell.kind == TUNED or x.cell.kind == TRY]

    def _ready(self, planned: Planned) -> bool:
        late = self.request.seconds
        if late is not None and self.seconds + planned.seconds * self._factor > late:
            return False
        return all(identity in self.records for identity in self._tries(planned))

    def next(self) -> Planned | None:
        """Return the next one; a cell that is chosen from tries comes with them."""
        took = [
            record["wall"] / each.seconds
            for each in self.configurations
            if each.seconds and "wall" in (record := self.records.get(each.identity, {}))
        ]
        self._factor = max(1.0, statistics.median(took)) if took else 1.0
        found = super().next()
        if found is None:
            return None
        return replace(found, tries=tuple(map(self.records.__getitem__, self._tries(found))))

    def _failed(self, planned: Planned, reason: str) -> Row:
        failed = {"error": reason, "missing": planned.state == MISSING}
        return blank_of(self.request, self.hardware, planned) | failed

    def _seconds(self, planned: Planned) -> float | None:
        if not planned.seconds:
            return 0.0
        if not self.request.tries:
            cell, given = planned.cell, (self.request.workers, self.request.on)
            like = cell.dataset, cell.scoring, cell.sampler
            slower = slowness(self.results.rows, self.hardware, *given, like)
            planned = replace(planned, slower=slower or 1.0)
        return planned.seconds / self.request.workers

    def _keep_known(self, known: Sequence[tuple[Planned, Row]]) -> None:
        if any(not planned.cell.is_try for planned, _ in known):  # another table may have had them
            self._write()

    def _write(self) -> None:
        self.made.file = self.results.keep(self.made.definition.name, self.rows())

    def _keep(self, planned: Planned, record: Row) -> None:
        tuning = planned.cell.is_try or planned.cell.is_chosen
        if tuning and planned.state != DONE and not record["error"]:
            self.progress.say(f"  {planned.title}: {_told(record)}")
        if not planned.cell.is_try:
            self._write()
        elif not record["error"]:
            self.results.keep_try(record)


def _told(row: Row) -> str:
    split = "test" if row.get("test") or row.get("f1") else "valid"
    numbers = [
        f"{name} {row[split][name]:.4f}"
        for name in ("mrr", "hits@10", "accuracy", "micro_f1")
        if name in (row.get(split) or {})
    ]
    numbers += [f"{name} {value:.4f}" for name, value in row.get("f1", {}).items()]
    best = (
        f", best of {plural(row['epochs'], 'epoch')} at {row['best_epoch']}"
        if "best_epoch" in row
        else ""
    )
    return f"{split} {', '.join(numbers) or 'diverged'}{best}, {row['wall']:.1f} s"
