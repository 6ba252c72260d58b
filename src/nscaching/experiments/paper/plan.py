"""What a reproduction will do, said in advance: which cells, what is done, how long it takes.

Expected times come from a rough model, corrected by what was timed on this machine already.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from nscaching.experiments.paper.definitions import (
    AXES,
    TRY,
    TUNED,
    Cell,
    packaged,
    settings_of,
    shortened,
)
from nscaching.experiments.paper.making import graph_of, has_data, scale_of
from nscaching.experiments.paper.results import Results, Row
from nscaching.experiments.paper.tries import known_by, lengths, try_settings
from nscaching.experiments.runner import DONE, state_of
from nscaching.graph import KnowledgeGraph
from nscaching.graph.datasets import known_dataset
from nscaching.models import SCORING
from nscaching.options import OptionGroup, Options
from nscaching.runs.api import recipe_config
from nscaching.training import Progress
from nscaching.training.benchmarking import describe_machine, time_run
from nscaching.training.devices import pick_device

#: Steps that are timed to say how long tries will take.
_TIMED_STEPS = 60
#: Seconds until a run trains whose kernels are compiled and whose graph is loaded.
_START_AGAIN = 0.5
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
    model_seconds: float  #: by the stored costs
    slower: float = 0.0  #: than that it is here, by what was timed; 0 for what is done
    share: float = 1.0  #: of the epochs that early stopping leaves
    tries: tuple[Row, ...] = ()  #: what a tuned cell is chosen from, when it starts

    @property
    def at_most(self) -> float:
        """The seconds without early stopping."""
        return self.model_seconds * self.slower

    @property
    def seconds(self) -> float:
        """The seconds that are expected."""
        return self.at_most * self.share

    @property
    def tuned(self) -> tuple[str, ...]:
        """What the tries of a cell and the cell with each of its seeds have in common."""
        return replace(self.cell, kind=TUNED, seed=0).identity

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
    scale = scale_of(request.on) or 1
    planned: dict[tuple[str, ...], Planned] = {}
    timed: dict[tuple[Any, ...], float] = {}
    for cell in cells:
        settings = cell_settings(cell, request)
        known = _trained_like(cell, settings, request)
        info = known_dataset("world" if request.on == "world" else cell.dataset)
        sizes = None
        if info is not None:
            sizes = Sizes(*(n // scale for n in (info.train, info.valid, info.entities)))
        seconds = expected_seconds(cell, known, sizes, device)
        row = results.find(cell, settings, request.on)
        state = state_of(row, run_folder(request, cell).exists())
        made = Planned(cell, settings, state, seconds)
        if state != DONE and not has_data(cell.dataset, request.on):
            made = replace(made, state=MISSING)
        elif state != DONE:
            like = cell.dataset, cell.scoring, cell.sampler
            if like not in timed:
                here = results.rows, hardware, request
                factor = slowness(*here, like) or slowness(*here)
                if factor is None:
                    factor = waiting(request.workers, device)
                    if say and request.tries and cell.scoring and not stored:
                        say(f"Timing {SCORING[cell.scoring].__name__}, {cell.sampler}, {like[0]}")
                        graph = graph_of(cell.dataset, request.on)
                        factor *= timed_now(cell, known, sizes, graph, device)
                timed[like] = factor
            share = epochs_share(results.rows, cell, known)
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


def _trained_like(cell: Cell, settings: dict[str, Any], request: Request) -> dict[str, Any]:
    """Return options that stand for those of a cell in its expected time: a try for the tuned."""
    if request.tries is None or cell.kind == TRY:
        return settings
    like = replace(cell, kind=TRY, seed=cell.seed % request.tries)
    return shortened(try_settings(like) | lengths(cell, cell.kind), request.budget)


def run_folder(request: Request, cell: Cell) -> Path:
    """Return where a cell is trained; version control leaves folders called runs alone.

    Smoke runs have a place of their own: a whole run could not resume one.
    """
    smoke = [] if request.on is None else [f"on-{request.on.replace('/', '-').strip('-.')}"]
    smoke += [] if request.budget is None else [f"budget-{request.budget}"]
    return request.out / "runs" / "-".join(smoke) / cell.folder


# How long a cell takes: the stored costs, corrected by what was timed on this machine ------------


class Sizes(NamedTuple):
    """What the time depends on."""

    train: int
    valid: int
    entities: int


def expected_seconds(
    cell: Cell, settings: Mapping[str, Any], sizes: Sizes | None, device: str
) -> float:
    """Return the seconds of a cell by the stored costs alone."""
    if cell.scoring is None or sizes is None:
        return float(packaged("costs.yaml")["nodes"])
    device = "cuda" if device.startswith("cuda") else "cpu"
    one = _run_seconds(cell, settings, sizes, device)
    if cell.kind == "search":
        trial = {**settings, **settings.get("trial", {})}
        return one + int(settings["trials"]) * _run_seconds(cell, trial, sizes, device)
    return 2 * one if cell.kind == "variance" else one


def _run_seconds(cell: Cell, settings: Mapping[str, Any], sizes: Sizes, device: str) -> float:
    assert cell.scoring is not None
    costs, model = packaged("costs.yaml"), SCORING[cell.scoring]
    of, batch = costs[device], settings["batch_size"]
    epochs, width = settings["epochs"], settings["dim"] * model.entity_parts
    before = min(epochs, settings.get("pretrain_epochs", 0))
    steps = math.ceil(sizes.train / batch)

    def epoch(sampler: str) -> float:
        like, weight = costs["samplers"].get(sampler, (sampler, 1.0))
        if device == "cpu" and like == "nscaching":
            weight *= costs["cpu_nscaching"].get(cell.scoring, 1.0)
        always, fixed, row, number = of["training"][like]
        one = fixed + row * sizes.entities * width + number * min(batch, sizes.train) * width
        return float(weight * (always + steps * one))

    training = (epochs - before) * epoch(cell.sampler) + before * epoch("bernoulli")
    pair = of["ranked_pair"]["dot" if model.usual_loss == "logistic" else "distance"]
    ranking = (epochs / settings["valid_every"] + 1) * 2 * sizes.valid * sizes.entities * pair
    return float(of["start"] + training + ranking)


def waiting(workers: int, device: str) -> float:
    """Return how much longer a run takes beside others, until some were timed that way."""
    of = packaged("costs.yaml")["cuda" if device.startswith("cuda") else "cpu"]
    return float(workers ** (1 - of["sharing"]))


def slowness(
    rows: Iterable[Row],
    hardware: Mapping[str, Any],
    request: Request,
    like: tuple[Any, ...] | None = None,
) -> float | None:
    """Return by how much an epoch on this machine took longer than expected; None if none was.

    ``like`` asks for those of one data set, scoring function and sampler. Runs on a stand-in say
    nothing of those on the data, nor do several at once of one alone.
    """
    ratios = []
    for row in rows:
        there = row.get("hardware") or {}
        same = all(there.get(part) == hardware.get(part) for part in ("gpu", "processor", "cores"))
        same &= (row.get("on"), row.get("workers", 1)) == (request.on, request.workers)
        same &= like in (None, (row["dataset"], row["scoring"], row["sampler"]))
        took = row.get("wall", row.get("seconds"))
        if same and row.get("expected_seconds") and took:
            ratios.append(took / row["expected_seconds"] / _share_trained(row))
    return statistics.median(ratios) if ratios else None


def _share_trained(row: Row) -> float:
    asked = (row.get("chosen") or row["settings"]).get("epochs")
    return float(row["epochs"] / asked) if asked and row.get("epochs") else 1.0


def epochs_share(rows: Iterable[Row], cell: Cell, settings: Mapping[str, Any]) -> float:
    """Return the share of the epochs that early stopping leaves, by the runs there are."""
    if not settings.get("patience"):
        return 1.0
    kind = [row for row in rows if row["kind"] == cell.kind and row.get("epochs")]
    alike = [row for row in kind if row["sampler"] == cell.sampler] or kind
    near = [row for row in alike if row["dataset"] == cell.dataset] or alike
    found = [_share_trained(row) for row in near]
    if found:
        return statistics.fmean(found)
    usual = packaged("costs.yaml")["early_stopping"]
    return float(usual.get(cell.dataset, usual["others"]))


def timed_now(
    cell: Cell, settings: dict[str, Any], sizes: Sizes | None, graph: KnowledgeGraph, device: str
) -> float:
    """Time some steps and a validation; return how much slower they are than expected."""
    options = {**settings, "pretrain_epochs": 0, "device": device}
    config = recipe_config({**options, "data": graph.name}, graph, graph, Progress("none"))
    timing = time_run(graph, config, epochs=2, split="valid", most_steps=_TIMED_STEPS)
    epochs = settings["epochs"]
    training: float = epochs * timing.epoch_seconds
    validating: float = (epochs / settings["valid_every"] + 1) * timing.evaluation_seconds
    plain = replace(cell, kind="train")
    took = _START_AGAIN + training + validating
    return took / expected_seconds(plain, options, sizes, device)
