"""What a reproduction will do, said in advance: which cells, what is done, how long it takes.

Expected times come from a rough model, corrected by what was timed on this machine already.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nscaching.experiments.paper.cells import Cell, Results, Row
from nscaching.experiments.paper.definitions import packaged, settings_of
from nscaching.experiments.paper.sources import Sources
from nscaching.experiments.runner import DONE, FAILED, STOPPED, WAITING, state_of
from nscaching.graph.datasets import known_dataset
from nscaching.training.benchmarking import describe_machine
from nscaching.training.devices import pick_device

#: Trials of a search, as in the paper.
USUAL_TRIALS = 50
#: The state of a cell whose data set is not on this machine.
MISSING = "data not at hand"


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

    @property
    def identity(self) -> str:
        """What its row is known by within a reproduction."""
        return "/".join(self.cell.identity)

    @property
    def title(self) -> str:
        """How it is called on the screen."""
        place = f"{self.cell.dataset} {self.cell.scoring or ''}".strip()
        return f"{place}: {self.cell.label}, seed {self.cell.seed}"

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


def plan(
    cells: Sequence[Cell], request: Request, results: Results, sources: Sources
) -> list[Planned]:
    """Return the cells once each, with their settings, state and expected time."""
    device = pick_device(request.device)
    factor = correction(results.rows, describe_machine(device.type), request.on)
    unique = {cell.identity: cell for cell in reversed(cells)}
    ordered = [cell for cell in cells if unique[cell.identity] is cell]
    planned = []
    for cell in ordered:
        settings = cell_settings(cell, request)
        sizes = Sizes.of("world" if request.on == "world" else cell.dataset, sources.scale or 1)
        seconds = expected_seconds(cell, settings, sizes, device.type)
        state = _state(cell, settings, request, results, sources)
        left = seconds * factor if state in (WAITING, STOPPED, FAILED) else 0.0
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

    Smoke runs have a place of their own: a whole run could not resume one.
    """
    smoke = [] if request.on is None else [f"on-{request.on.replace('/', '-').strip('-.')}"]
    smoke += [] if request.budget is None else [f"budget-{request.budget}"]
    return request.out / "runs" / "-".join(smoke) / cell.folder


def _state(
    cell: Cell, settings: Mapping[str, Any], request: Request, results: Results, sources: Sources
) -> str:
    row = results.find(cell, settings, request.on)
    state = state_of(row, run_folder(request, cell).exists())
    return MISSING if state != DONE and not sources.at_hand(cell.dataset) else state


# How long it takes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """What the time depends on."""

    train: int
    valid: int
    entities: int

    @classmethod
    def of(cls, dataset: str, scale: int = 1) -> Sizes | None:
        """Return the sizes of a named data set, or of a shape that is so much smaller."""
        info = known_dataset(dataset)
        if info is None:
            return None
        return cls(info.train // scale, info.valid // scale, info.entities // scale)


def expected_seconds(
    cell: Cell, settings: Mapping[str, Any], sizes: Sizes | None, device: str
) -> float:
    """Return the seconds of a cell by the stored costs alone."""
    costs = packaged("costs.yaml")
    if cell.kind == "nodes" or sizes is None:
        return float(costs["nodes"])
    device = "cuda" if device.startswith("cuda") else "cpu"
    one = _run_seconds(cell, settings, sizes, device)
    if cell.kind == "search":
        trial = {**settings, **settings.get("trial", {})}
        return one + int(settings["trials"]) * _run_seconds(cell, trial, sizes, device)
    return 2 * one if cell.kind == "variance" else one


def _run_seconds(cell: Cell, settings: Mapping[str, Any], sizes: Sizes, device: str) -> float:
    costs = packaged("costs.yaml")
    of, weights = costs[device], costs["samplers"]
    epochs, width = settings["epochs"], settings["dim"] / 200
    before = min(epochs, settings.get("pretrain_epochs", 0))
    weight = weights[cell.sampler]
    if (device, cell.sampler) == ("cpu", "nscaching"):
        weight *= costs["cpu_nscaching"].get(cell.scoring, 1.0)
    weighted = (epochs - before) * weight + before * weights["bernoulli"]
    steps = math.ceil(sizes.train / settings["batch_size"])
    training = weighted * (sizes.train * of["triple"] * width + steps * of["step"])
    validations = epochs / settings["valid_every"] + 1
    ranking = validations * 2 * sizes.valid * sizes.entities * of["ranked_pair"]
    return float(of["start"] + training + ranking)


def correction(rows: Iterable[Row], hardware: Mapping[str, Any], on: str | None) -> float:
    """Return by how much runs on this machine took longer than expected; 1 where none is known."""
    ratios = _ratios(rows, hardware, on)
    return statistics.median(ratios) if ratios else 1.0


def timed_here(rows: Iterable[Row], hardware: Mapping[str, Any], on: str | None) -> bool:
    """Tell whether some run on this machine was timed, so that expected times are corrected."""
    return bool(_ratios(rows, hardware, on))


def _ratios(rows: Iterable[Row], hardware: Mapping[str, Any], on: str | None) -> list[float]:
    """Return seconds over expected ones; runs on a stand-in say nothing of those on the data."""
    return [
        row["seconds"] / row["expected_seconds"]
        for row in rows
        if row.get("on") == on
        and row.get("expected_seconds")
        and row.get("seconds")
        and _same_machine(row.get("hardware") or {}, hardware)
    ]


def _same_machine(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(part) == other.get(part) for part in ("gpu", "processor", "cores"))
