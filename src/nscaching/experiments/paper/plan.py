"""What a reproduction will do, said in advance: which cells, what is done, how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nscaching.experiments.paper.definitions import (
    AXES,
    TRY,
    TUNED,
    Cell,
    packaged,
    settings_of,
    shortened,
)
from nscaching.experiments.paper.expected import (
    Cost,
    cost_of,
    epochs_share,
    mean_cost,
    shared,
    sizes_of,
    slowness,
    timed_now,
)
from nscaching.experiments.paper.making import graph_of, has_data
from nscaching.experiments.paper.results import Results, Row
from nscaching.experiments.paper.tries import from_scratch, known_by, lengths, try_settings
from nscaching.experiments.runner import DONE, state_of
from nscaching.models import SCORING
from nscaching.options import OptionGroup, Options
from nscaching.training.benchmarking import describe_machine
from nscaching.training.devices import pick_device

#: Trials of a search, as in the paper.
USUAL_TRIALS = 50
#: The state of a cell whose data set is not on this machine.
MISSING = "no data"


_which = OptionGroup("Reproduction")


@dataclass(frozen=True, kw_only=True)
class Request(Options):
    """What is asked for, besides the name of the table or figure."""

    dataset: tuple[str, ...] = _which((), "Only this data set; repeatable.")
    scoring: tuple[str, ...] = _which((), "Only this scoring function; repeatable.")
    sampler: tuple[str, ...] = _which((), "Only this sampler; repeatable.")
    mode: tuple[str, ...] = _which((), "Only scratch, pretrain, pretrained or auto; repeatable.")
    seeds: tuple[int, ...] = _which((0,), "Seeds.")
    tries: int | None = _which(
        None,
        "Tune every cell equally, whatever its sampler: so many settings of the paper's grid are "
        "compared on valid by the measure of the table, the best two again after more epochs; "
        "the best is run with every seed. By default cells have the settings of the package.",
        low=1,
    )
    workers: int = _which(1, "Processes that train cells, on a GPU best under CUDA MPS.", low=1)
    seconds: float | None = _which(
        None, "Start nothing that is expected to end later; the same command resumes.", low=1
    )
    out: Path = _which(  # noqa: RUF009 - nobody changes a path
        Path("runs/paper"),
        "Folder of the results, the runs go to runs/ in it; with --report the page.",
    )
    budget: int | None = _which(None, "Epochs of a run at most, for a smoke run.", low=1)
    trials: int | None = _which(None, "Trials of a search; by default 50.", low=1)
    on: str | None = _which(
        None,
        "Use this graph in place of the data sets: world, a folder, or shape/100 for a "
        "random graph of a hundredth of their size.",
    )
    device: str = _which("auto", "auto, cpu, cuda or mps.")

    @property
    def filters(self) -> dict[str, Sequence[str]]:
        """Which cells are asked for, by what they differ in; an empty list is all of them."""
        return {name: getattr(self, name) for name in AXES}


@dataclass(frozen=True)
class Planned:
    """A cell, where it stands, and the seconds it is expected to take."""

    cell: Cell
    settings: dict[str, Any]
    state: str
    cost: Cost  #: by the stored costs
    slower: float = 0.0  #: than that it works here, by what was timed; 0 for what is done
    share: float = 1.0  #: of the epochs that early stopping leaves
    tries: tuple[Row, ...] = ()  #: what a tuned cell is chosen from, when it starts

    @property
    def at_most(self) -> float:
        """The seconds without early stopping."""
        return self.cost.seconds(self.slower) if self.slower else 0.0

    @property
    def seconds(self) -> float:
        """The seconds that are expected."""
        return self.cost.seconds(self.slower * self.share) if self.slower else 0.0

    @property
    def tuned(self) -> tuple[str, ...]:
        """What the tries of a sampler and its cells of any mode and seed have in common."""
        return from_scratch(replace(self.cell, kind=TUNED, seed=0)).identity

    @property
    def identity(self) -> str:
        """What its row is known by within a reproduction."""
        return "/".join(self.cell.identity)

    @property
    def title(self) -> str:
        """How it is called on the screen."""
        place = f"{self.cell.dataset} {self.cell.scoring or ''}".strip()
        if self.cell.is_try:
            return f"{place}: {self.cell.label}, {self.cell.kind} {self.cell.seed + 1}"
        return f"{place}: {self.cell.label}, seed {self.cell.seed}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "dataset": self.cell.dataset,
            "scoring": self.cell.scoring,
            "row": self.cell.label,
            "kind": self.cell.kind,
            "seed": self.cell.seed,
            "state": self.state,
            "seconds": round(self.seconds, 1),
            "at_most_seconds": round(self.at_most, 1),
        }


def plan(
    cells: Sequence[Cell],
    request: Request,
    results: Results,
    say: Callable[[str], None] | None = None,
) -> list[Planned]:
    """Return the cells once each, with their settings, state and expected time.

    With ``say``, which is told about it, steps of every model and sampler that tries are asked for
    are timed now, unless cells were timed on this machine or it is the one of the stored costs.
    """
    device = pick_device(request.device).type
    hardware = describe_machine(device)
    stored = hardware["gpu"] == packaged("costs.yaml")["cuda"]["gpu"]  # the costs are those of it
    planned: dict[tuple[str, ...], Planned] = {}
    timed: dict[tuple[Any, ...], float] = {}
    for cell in cells:
        settings = cell_settings(cell, request)
        sizes = sizes_of(cell.dataset, request.on)
        known = stand_ins(cell, settings, request)
        cost = mean_cost([cost_of(cell, each, sizes, device) for each in known])
        row = results.find(cell, settings, request.on)
        state = state_of(row, run_folder(request, cell).exists())
        made = Planned(cell, settings, state, cost)
        if state != DONE and not has_data(cell.dataset, request.on):
            made = replace(made, state=MISSING)
        elif state != DONE:
            like = cell.dataset, cell.scoring, cell.sampler
            if like not in timed:
                factor = slowness(results.rows, hardware, request.workers, request.on, like)
                if factor is None:
                    factor = shared(cell.sampler, request.workers, device)
                    if say and request.tries and cell.scoring and not stored:
                        say(f"Timing {SCORING[cell.scoring].__name__}, {cell.sampler}, {like[0]}")
                        graph = graph_of(cell.dataset, request.on)
                        factor *= timed_now(cell, known[0], sizes, graph, device)
                timed[like] = factor
            share = epochs_share(results.rows, cell, known[0])
            made = replace(made, slower=timed[like], share=share)
        planned.setdefault(cell.identity, made)
    return list(planned.values())


def cell_settings(cell: Cell, request: Request) -> dict[str, Any]:
    """Return the options that a row is known by."""
    if cell.kind == "nodes" and request.budget is not None:
        return {"epochs": request.budget}
    if cell.kind == TRY:
        found = try_settings(cell)
    elif request.tries is not None:
        found = known_by(cell, request.tries)
    else:
        found = {} if cell.kind == "nodes" else settings_of(cell)
    if cell.kind == "search":
        found["trials"] = request.trials or found.get("trials", USUAL_TRIALS)
    return shortened(found, request.budget)


def stand_ins(cell: Cell, settings: dict[str, Any], request: Request) -> list[dict[str, Any]]:
    """Return options that stand for those of a cell in its expected time: any try for the tuned."""
    if request.tries is None or cell.kind == TRY:
        return [settings]
    tries = (try_settings(replace(cell, kind=TRY, seed=n)) for n in range(request.tries))
    return [shortened(each | lengths(cell, cell.kind), request.budget) for each in tries]


def run_folder(request: Request, cell: Cell) -> Path:
    """Return where a cell is trained; version control leaves folders called runs alone.

    Smoke runs have a place of their own: a whole run could not resume one.
    """
    smoke = [] if request.on is None else [f"on-{request.on.replace('/', '-').strip('-.')}"]
    smoke += [] if request.budget is None else [f"budget-{request.budget}"]
    return request.out / "runs" / "-".join(smoke) / cell.folder
