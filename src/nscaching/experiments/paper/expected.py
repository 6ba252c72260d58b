"""How long a cell takes: stored costs, corrected by what was timed on the machine already.

A run takes some seconds to start, whatever runs beside it, and then works: training and validations
are slower on a slower machine, and where several runs share it.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nscaching.experiments.paper.definitions import Cell, packaged
from nscaching.experiments.paper.making import scale_of
from nscaching.experiments.paper.results import Row, cell_of
from nscaching.experiments.paper.tries import loss_of
from nscaching.graph import KnowledgeGraph
from nscaching.graph.datasets import known_dataset
from nscaching.models import SCORING
from nscaching.runs.api import recipe_config
from nscaching.training import Progress
from nscaching.training.benchmarking import time_run

#: Steps that are timed to say how long tries will take.
_TIMED_STEPS = 60


class Sizes(NamedTuple):
    """What the time depends on."""

    train: int
    valid: int
    entities: int


class Cost(NamedTuple):
    """Seconds of a cell, alone on the machine of the stored costs."""

    start: float  #: until it trains
    work: float  #: training and validations

    def seconds(self, slower: float) -> float:
        """Return the seconds where work takes so many times as long."""
        return self.start + self.work * slower


def last_end(seconds: Iterable[float], workers: int) -> float:
    """Return when the last of some runs ends, each of which the first free worker takes."""
    free = [0.0] * workers
    for each in seconds:
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def sizes_of(dataset: str, on: str | None) -> Sizes | None:
    """Return the sizes of a data set or of what stands in; None where they are not known."""
    info, scale = known_dataset("world" if on == "world" else dataset), scale_of(on) or 1
    if info is None:
        return None
    return Sizes(*(n // scale for n in (info.train, info.valid, info.entities)))


def mean_cost(costs: Sequence[Cost]) -> Cost:
    """Return the mean of some costs."""
    return Cost(*map(statistics.fmean, zip(*costs, strict=True)))


def cost_of(cell: Cell, settings: Mapping[str, Any], sizes: Sizes | None, device: str) -> Cost:
    """Return the seconds of a cell by the stored costs alone."""
    if cell.scoring is None or sizes is None:
        return Cost(0.0, float(packaged("costs.yaml")["nodes"]))
    device = "cuda" if device.startswith("cuda") else "cpu"
    start = float(packaged("costs.yaml")[device]["start"])
    work = _work(cell, settings, sizes, device)
    if cell.kind == "search":
        trials = int(settings["trials"])
        trial = {**settings, **settings.get("trial", {})}
        return Cost((1 + trials) * start, work + trials * _work(cell, trial, sizes, device))
    runs = 2 if cell.kind == "variance" else 1
    return Cost(runs * start, runs * work)


def _work(cell: Cell, settings: Mapping[str, Any], sizes: Sizes, device: str) -> float:
    """Return the seconds of training and validations."""
    assert cell.scoring is not None
    costs, model = packaged("costs.yaml"), SCORING[cell.scoring]
    of, batch = costs[device], settings["batch_size"]
    epochs, width = settings["epochs"], settings["dim"] * model.entity_parts
    before = min(epochs, settings.get("pretrain_epochs", 0))
    steps = math.ceil(sizes.train / batch)

    def epoch(sampler: str) -> float:
        like, weight = _timed_as(sampler)
        if device == "cpu" and like == "nscaching":
            weight *= costs["cpu_nscaching"].get(cell.scoring, 1.0)
        always, fixed, row, number = of["training"][like]
        one = fixed + row * sizes.entities * width + number * min(batch, sizes.train) * width
        return float(weight * (always + steps * one))

    training = (epochs - before) * epoch(cell.sampler) + before * epoch("bernoulli")
    pair = of["ranked_pair"]["dot" if model.usual_loss == "logistic" else "distance"]
    ranking = (epochs / settings["valid_every"] + 1) * 2 * sizes.valid * sizes.entities * pair
    return float(training + ranking)


def _timed_as(sampler: str) -> tuple[str, float]:
    """Return the sampler whose costs are stored, and how many times as long this one takes."""
    like, weight = packaged("costs.yaml")["samplers"].get(sampler, (sampler, 1.0))
    return str(like), float(weight)


def shared(sampler: str, workers: int, device: str) -> float:
    """Return how much slower a run works beside others, until some were timed that way."""
    sharing = packaged("costs.yaml")["cuda" if device.startswith("cuda") else "cpu"]["sharing"]
    return float(workers ** (1 - sharing.get(_timed_as(sampler)[0], 0.0)))


def slowness(
    rows: Iterable[Row],
    hardware: Mapping[str, Any],
    workers: int,
    on: str | None,
    like: tuple[str, str | None, str] | None = None,
) -> float | None:
    """Return by how much runs on this machine worked slower than expected; None if none was timed.

    ``like`` names a data set, scoring function and sampler: runs of all three count where there are
    any, else those of the sampler, else all of graphs with (or without) relations. Runs on a
    stand-in say nothing of those on the data, nor do several at once of one alone, nor traced ones.
    """
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for row in rows:
        there = row.get("hardware") or {}
        same = all(there.get(part) == hardware.get(part) for part in ("gpu", "processor", "cores"))
        same &= (row.get("on"), row.get("workers", 1)) == (on, workers)
        took = max(row.get("wall") or 0.0, row.get("seconds") or 0.0)  # resumed ones: all seconds
        traced = any(name.startswith("trace") for name in row["options"])
        if same and took and not traced and not row.get("error"):
            cost = _cost_of_row(row)
            pair = max(took - cost.start, 0.01 * took), cost.work
            for key in (*_keys((row["dataset"], row["scoring"], row["sampler"])), ()):
                found.setdefault(key, []).append(pair)
    for key in _keys(like) if like else [()]:
        if key in found:
            took_in_all, expected = map(sum, zip(*found[key], strict=True))
            return float(took_in_all / expected)
    return None


def _keys(like: tuple[str, str | None, str]) -> Iterator[tuple[Any, ...]]:
    """Return names of sets of runs, the most alike first."""
    yield like
    yield (like[2],)
    yield ("nodes" if like[1] is None else "facts",)


def _cost_of_row(row: Row) -> Cost:
    """Return what a finished cell was to cost, for the epochs that it was trained."""
    settings = dict(row.get("chosen") or row["settings"])
    if row["kind"] != "search" and row.get("epochs"):
        settings["epochs"] = row["epochs"]
    sizes = sizes_of(row["dataset"], row.get("on"))
    return cost_of(cell_of(row), settings, sizes, "cuda" if row["hardware"]["gpu"] else "cpu")


def epochs_share(rows: Iterable[Row], cell: Cell, settings: Mapping[str, Any]) -> float:
    """Return the share of the epochs that early stopping leaves, by the runs there are."""
    if not settings.get("patience"):
        return 1.0
    usual, loss = packaged("costs.yaml")["early_stopping"], loss_of(cell)
    near = [r for r in rows if r["kind"] == cell.kind and r["dataset"] == cell.dataset]
    near = [r for r in near if r.get("epochs") and loss_of(cell_of(r)) == loss]
    near = [r for r in near if r["sampler"] == cell.sampler] or near
    if not near:
        return float(usual.get(cell.dataset, {}).get(loss, usual["others"][loss]))
    return statistics.fmean(
        row["epochs"] / (row.get("chosen") or row["settings"])["epochs"] for row in near
    )


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
    return (training + validating) / cost_of(
        replace(cell, kind="train"), options, sizes, device
    ).work
