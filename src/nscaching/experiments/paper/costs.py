"""How long a cell is expected to take: a rough model, corrected by what was timed already."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nscaching.experiments.paper.cells import Cell
from nscaching.experiments.paper.packaged import packaged
from nscaching.graph.datasets import known_dataset

Row = Mapping[str, Any]


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
