"""Tables and figures as data: what is run for each, its settings, and what the paper prints.

What a table or a figure needs is a list of cells, each of which is one run.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from nscaching.errors import UserError, nearest_names
from nscaching.experiments.tune.space import SPACES
from nscaching.nodes.api import PAPER as NODES
from nscaching.nodes.tasks import SHARES

#: Options that count epochs; a budget shortens them.
LENGTHS = ("epochs", "valid_every", "trace_every", "pretrain_epochs", "generator_epochs")
#: Kinds of cells that ``--tries`` adds: short tries, the best of them for longer, and the best.
TRY, LONGER, TUNED = "try", "longer", "tuned"
TRIES = (TRY, LONGER)
#: What cells differ in, and may be asked for by.
AXES = ("dataset", "scoring", "sampler", "mode")
#: Samplers whose cells are run even where the paper prints no number.
_ALWAYS = ("bernoulli", "nscaching")


def decided_by_search(space: str = "sampler") -> list[str]:
    """Return what a search decides; the settings of its cell must not fix it."""
    return [each.name for each in SPACES[space].hyperparameters]


@cache
def packaged(name: str) -> Any:
    """Return the content of a YAML or JSON file of this package."""
    file = files("nscaching.experiments.paper").joinpath(*name.split("/"))
    return yaml.safe_load(file.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Cell:
    """One number of a table, or one line of a figure, for one seed."""

    dataset: str
    scoring: str | None  #: None for graphs without relations
    sampler: str
    mode: str = "scratch"
    options: Mapping[str, Any] = field(default_factory=dict)  #: what differs from the settings
    seed: int = 0
    #: train, search, nodes or variance; try: one of the tries of a cell, whose number is the seed;
    #: tuned: the best of them, on test
    kind: str = "train"
    panel: str = ""  #: part of the figure

    @property
    def is_try(self) -> bool:
        """Whether it is one of those that a tuned cell is chosen from."""
        return self.kind in TRIES

    @property
    def is_chosen(self) -> bool:
        """Whether its settings are chosen from tries."""
        return self.kind in (LONGER, TUNED)

    @property
    def identity(self) -> tuple[str, ...]:
        """What a result belongs to; two figures may share one."""
        own = json.dumps(dict(self.options), sort_keys=True)
        scoring = self.scoring or ""
        return self.kind, self.dataset, scoring, self.sampler, self.mode, own, str(self.seed)

    @property
    def label(self) -> str:
        """How a row or a line is called."""
        hidden = ("trace", "select")
        shown = {k: v for k, v in self.options.items() if not k.startswith(hidden)}
        own = [f"{name}={value}" for name, value in shown.items()]
        mode = [] if self.mode == "scratch" else [self.mode]
        return ", ".join([self.sampler, *mode, *own])

    @property
    def folder(self) -> str:
        """Return the name of its run folder."""
        own = [f"{name}={value}" for name, value in sorted(self.options.items())]
        parts = [self.dataset, self.scoring or "nodes", self.sampler, self.mode, *own]
        if self.kind != "train":
            parts.append(self.kind)
        return re.sub(r"[^A-Za-z0-9=.+_-]+", "-", "-".join(parts)) + f"-seed{self.seed}"


@dataclass(frozen=True)
class Definition:
    """A table or a figure of the paper."""

    name: str
    title: str
    label: str  #: in the paper's source
    draw: str  #: how its rows are shown
    groups: tuple[Mapping[str, Any], ...]

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--list`` shows."""
        return {
            "name": self.name,
            "title": self.title,
            "label": self.label,
            "datasets": sorted({each for group in self.groups for each in group["datasets"]}),
            "cells": len(self.cells()),
        }

    def cells(self, *, seeds: Sequence[int] = (0,), **filters: Sequence[str]) -> list[Cell]:
        """Return the runs it needs, those that the filters leave; an unknown name is refused."""
        every = [cell for group in self.groups for cell in _cells(group)]
        for axis, names in filters.items():
            there = dict.fromkeys(str(getattr(cell, axis)) for cell in every)
            for name in names:
                if name not in there:
                    near = nearest_names(name, there) or f"; it has {', '.join(there)}."
                    raise UserError(f"{self.name} has no {axis} '{name}'{near}")
            if names:
                every = [cell for cell in every if str(getattr(cell, axis)) in names]
        return [replace(cell, seed=seed) for seed in seeds for cell in every]


def _cells(group: Mapping[str, Any]) -> Iterator[Cell]:
    shown_in = group.get("printed_in")
    places = itertools.product(group["datasets"], group.get("scoring", [None]))
    for (dataset, scoring), variant in itertools.product(places, group["variants"]):
        for options in _variations(variant):
            cell = Cell(
                dataset,
                scoring,
                variant["sampler"],
                variant.get("mode", "scratch"),
                options,
                kind=group.get("kind", "train"),
                panel=group.get("panel", ""),
            )
            always = cell.sampler in _ALWAYS and cell.mode == "scratch"  # DistMult on YAGO3-10
            if not shown_in or always or printed(shown_in, vars(cell)):
                yield cell


def _variations(variant: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the options of a variant: every combination of ``vary``, ``together`` in step."""
    vary, together = variant.get("vary", {}), variant.get("together", {})
    steps = list(zip(*together.values(), strict=True)) or [()]
    for values in itertools.product(*vary.values()):
        for step in steps:
            yield {
                **variant.get("options", {}),
                **dict(zip(vary, values, strict=True)),
                **dict(zip(together, step, strict=True)),
            }


@cache
def definitions() -> dict[str, Definition]:
    """Return all definitions by name, in the order of the paper: tables, then figures."""
    read = packaged("definitions.yaml")
    made = [Definition(**{**each, "groups": tuple(each["groups"])}) for each in read]
    return {each.name: each for each in made}


def definition(name: str) -> Definition:
    """Return one definition."""
    found = definitions().get(name)
    if found is None:
        near = nearest_names(name, definitions()) or ". See 'nscaching reproduce --list'."
        raise UserError(f"The paper has nothing called '{name}'{near}")
    return found


# What the paper prints ----------------------------------------------------------------------------


def printed(table: str, row: Mapping[str, Any]) -> dict[str, float]:
    """Return what the paper prints for a result, by measure; nothing where it prints nothing."""
    sampler, mode, dataset = row["sampler"], row["mode"], row["dataset"]
    if table == "nodes":
        of_method = NODES.get(dataset, {}).get(sampler, ())
        return {
            f"{share:.0%} {name}": value
            for share, pair in zip(SHARES, of_method, strict=False)
            for name, value in zip(("micro_f1", "macro_f1"), pair, strict=True)
        }
    if table == "link_prediction" and mode == "smac":  # our own search stands beside the paper's
        mode = "auto"
    name = f"{sampler}-{mode}"  # as the paper's tables call it
    if sampler == "bernoulli":
        name = "pretrained" if mode == "pretrained" else "bernoulli"
    found = packaged("numbers.json")[table].get(row["scoring"], {}).get(name, {}).get(dataset)
    if isinstance(found, float):
        return {"accuracy": found}
    return {name: value for name, value in (found or {}).items() if value is not None}


def searched(dataset: str) -> dict[str, Any]:
    """Return the values of the cache that the paper's search found for a data set."""
    found: dict[str, Any] = packaged("numbers.json")["searched"].get(dataset, {})
    return dict(found)


# The settings of a cell ---------------------------------------------------------------------------


def chosen(dataset: str, scoring: str) -> dict[str, Any]:
    """Return the entry of a data set and scoring function: options, and how they were chosen."""
    found: dict[str, Any] = packaged(f"settings/{dataset}.yaml")[scoring]
    return found


def settings_of(cell: Cell, tried: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the training options of a cell.

    ``tried`` takes the place of the settings that the package has for the cell.
    """
    assert cell.scoring is not None
    entry = chosen(cell.dataset, cell.scoring)
    options = {**entry["options"], **entry.get("samplers", {}).get(cell.sampler, {})}
    if tried is not None:
        options = dict(tried)
    elif "recipe" in cell.options:
        lengths = {"epochs": 100, "valid_every": 5, "patience": 4}
        options = {"dim": 200, "batch_size": 1024, **lengths}  # as wide as the paper's cells
    if cell.mode == "pretrain":
        options.pop("generator_epochs", None)  # a generator starts from the pretrained model
        options["pretrain_epochs"] = entry["pretrain_epochs"]
    elif cell.mode == "pretrained":
        options["epochs"] = entry["pretrain_epochs"]
    elif cell.mode == "auto":
        # The paper's temperatures are those of rescaled scores.
        options |= {**searched(cell.dataset), "rescale": "quantile"}
    if cell.kind == "search":
        # "space" is the space to search, "trial" has options of the trials alone.
        options |= entry.get("search", {})
        found = decided_by_search(options.get("space", "sampler"))
        options = {name: value for name, value in options.items() if name not in found}
    options |= cell.options
    options |= {"scoring": cell.scoring, "sampler": cell.sampler, "seed": cell.seed}
    if cell.sampler == "igan" and "pretrain_epochs" not in options:
        options["generator_epochs"] = entry["pretrain_epochs"]
    return options


def shortened(options: dict[str, Any], budget: int | None) -> dict[str, Any]:
    """Return options with at most so many epochs, and all else that counts them as short."""
    if budget is None:
        return options
    parts = {"pretrain_epochs": budget // 2, "generator_epochs": max(1, budget // 2)}
    shorter = {
        name: min(value, parts.get(name, budget)) if name in LENGTHS else value
        for name, value in options.items()
    }
    trial = options.get("trial")
    return shorter if trial is None else {**shorter, "trial": shortened(trial, budget)}
