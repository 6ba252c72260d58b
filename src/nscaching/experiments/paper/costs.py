"""How long a cell takes: the stored costs, corrected by what was timed on this machine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nscaching.experiments.paper.definitions import Cell, packaged
from nscaching.experiments.paper.results import Row
from nscaching.graph import KnowledgeGraph
from nscaching.graph.datasets import known_dataset
from nscaching.models import SCORING
from nscaching.runs.api import recipe_config
from nscaching.training import Progress
from nscaching.training.benchmarking import time_run

#: Steps that are timed to say how long tries will take.
_TIMED_STEPS = 60
#: Seconds until a run trains whose kernels are compiled and whose graph is loaded.
_START_AGAIN = 0.5


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
        sizes = (info.train, info.valid, info.entities) if info else None
        return cls(*(size // scale for size in sizes)) if sizes else None


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


def costs_of(hardware: Mapping[str, Any]) -> bool:
    """Tell whether the stored costs were measured on such a machine."""
    return bool(hardware["gpu"] == packaged("costs.yaml")["cuda"]["gpu"])


def waiting(workers: int, device: str) -> float:
    """Return how much longer a run takes beside others, until some were timed that way."""
    of = packaged("costs.yaml")["cuda" if device.startswith("cuda") else "cpu"]
    return float(workers ** (1 - of["sharing"]))


def slowness(
    rows: Iterable[Row],
    hardware: Mapping[str, Any],
    on: str | None,
    workers: int,
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
        same &= row.get("on") == on and row.get("workers", 1) == workers
        if like is not None:
            same &= (row["dataset"], row["scoring"], row["sampler"]) == like
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
