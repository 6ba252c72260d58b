"""Tables and figures as data: what is run for each, and how it is shown."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from nscaching.errors import UserError, nearest_names
from nscaching.experiments.paper.cells import Cell
from nscaching.experiments.paper.numbers import printed
from nscaching.experiments.paper.packaged import packaged

#: Samplers whose cells are run even where the paper prints no number.
_ALWAYS = ("bernoulli", "nscaching")


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

    def cells(
        self,
        *,
        datasets: Sequence[str] = (),
        scoring: Sequence[str] = (),
        samplers: Sequence[str] = (),
        modes: Sequence[str] = (),
        seeds: Sequence[int] = (0,),
    ) -> list[Cell]:
        """Return the runs it needs, those that the filters leave; an unknown name is refused."""
        every = [cell for group in self.groups for cell in _cells(group)]
        asked = {"dataset": datasets, "scoring": scoring, "sampler": samplers, "mode": modes}
        for field, names in asked.items():
            there = dict.fromkeys(str(getattr(cell, field)) for cell in every)
            for name in names:
                if name not in there:
                    near = nearest_names(name, there) or f"; it has {', '.join(there)}."
                    raise UserError(f"{self.name} has no {field} '{name}'{near}")
            if names:
                every = [cell for cell in every if str(getattr(cell, field)) in names]
        return [Cell(**{**vars(cell), "seed": seed}) for seed in seeds for cell in every]


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
            if not shown_in or _belongs(cell) or printed(shown_in, vars(cell)):
                yield cell


def _belongs(cell: Cell) -> bool:
    """Tell whether a cell is run even where the paper prints nothing (DistMult on YAGO3-10)."""
    return cell.sampler in _ALWAYS and cell.mode == "scratch"


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
