"""How long a cell is expected to take: a rough model, corrected by what was timed already."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nscaching.graph.datasets import known_dataset
from nscaching.paper.cells import Cell
from nscaching.paper.packaged import packaged

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
    of = costs["cuda" if device.startswith("cuda") else "cpu"]
    one = _run_seconds(cell, settings, sizes, of)
    if cell.kind == "search":
        trial = {**settings, **settings.get("trial", {})}
        return one + int(settings["trials"]) * _run_seconds(cell, trial, sizes, of)
    return 2 * one if cell.kind == "variance" else one


def _run_seconds(
    cell: Cell, settings: Mapping[str, Any], sizes: Sizes, of: Mapping[str, float]
) -> float:
    epochs, width = settings["epochs"], settings["dim"] / 200
    before = min(epochs, settings.get("pretrain_epochs", 0))
    weights = packaged("costs.yaml")["samplers"]
    weighted = (epochs - before) * weights[cell.sampler] + before * weights["bernoulli"]
    steps = math.ceil(sizes.train / settings["batch_size"])
    training = weighted * (sizes.train * of["triple"] * width + steps * of["step"])
    validations = epochs / settings["valid_every"] + 1
    ranking = validations * 2 * sizes.valid * sizes.entities * of["ranked_pair"]
    return float(of["start"] + training + ranking)


def correction(rows: Iterable[Row], hardware: Mapping[str, Any], on: str | None) -> float:
    """Return by how much runs on this machine took longer than expected; 1 where none is known.

    Runs on a stand-in say nothing of those on the data itself.
    """
    ratios = [
        row["seconds"] / row["expected_seconds"]
        for row in rows
        if row.get("on") == on
        and row.get("expected_seconds")
        and row.get("seconds")
        and _same_machine(row.get("hardware") or {}, hardware)
    ]
    return statistics.median(ratios) if ratios else 1.0


def _same_machine(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(part) == other.get(part) for part in ("gpu", "processor", "cores"))
