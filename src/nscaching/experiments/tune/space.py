"""What is searched: tables of hyperparameters, and the named spaces that are made of them.

To search a new option, add a row to :data:`HYPERPARAMETERS` and its name to a space. The value that
the configuration being tuned has is always in its range, because the first trial has it.

Every hyperparameter has a *position*, which the optimiser moves, and a *value*, which training
takes. They differ for numbers: positions go from 0 to 1. An exact zero is another algorithm for the
temperatures (a plain shuffle, a uniform choice) and must be reachable: where ``zero`` is set, the
lowest fifth of the positions means 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nscaching.errors import UserError
from nscaching.models import SCORING
from nscaching.options import Options
from nscaching.training import TrainConfig

#: Share of the positions that mean exactly zero, where zero is a value.
ZERO_SHARE = 0.2
#: The smallest batch size in the grid, unless the base has a smaller one.
_SMALLEST_BATCH = 1024

Position = float | str


@dataclass(frozen=True)
class Hyperparameter:
    """One row of a table: what is searched, over which values, and under which condition."""

    name: str  #: of the option
    scale: str  #: linear or log, between two ends; grid, in order; choice, in no order
    values: tuple[Any, ...]  #: the two ends, or all values
    zero: bool = False  #: for linear and log: whether exactly 0 is a value too
    when: Mapping[str, tuple[Any, ...]] | None = None  #: only where these options have these values
    first: Any = None  #: of the first trial

    @property
    def is_number(self) -> bool:
        """Whether positions go from 0 to 1."""
        return self.scale in ("linear", "log")

    def starting_at(self, value: Any) -> Hyperparameter:
        """Return it with the value of the first trial, which is added to the range if need be."""
        if value is None:  # decided by training
            return replace(self, first=self.values[len(self.values) // 2])
        if not self.is_number:
            values = self.values if value in self.values else (*self.values, value)
            return replace(
                self, values=tuple(sorted(values)) if self.scale == "grid" else values, first=value
            )
        zero = self.zero or value == 0
        low, high = self.values
        if value != 0 and math.isfinite(value):
            low, high = min(low, value), max(high, value)
        return replace(self, values=(low, high), zero=zero, first=value)

    def value(self, position: Position) -> Any:
        """Return the value that training takes; numbers have the four digits that matter."""
        if not self.is_number:
            return position
        if self.first is not None:
            start = self.position(self.first)
            if math.isclose(float(position), float(start), abs_tol=1e-9):  # exactly, all digits
                return self.first
        share = ZERO_SHARE if self.zero else 0.0
        above = (float(position) - share) / (1 - share)
        if self.zero and above <= 0:
            return 0.0
        low, high = self.values
        number = low * (high / low) ** above if self.scale == "log" else low + (high - low) * above
        return float(f"{number:.4g}")

    def position(self, value: Any) -> Position:
        """Return a position that has this value; a number out of range goes to its end."""
        if not self.is_number:
            place: Position = value
            return place
        if self.zero and value <= 0:
            return 0.0
        low, high = self.values
        if value >= high:
            return 1.0
        if self.scale == "log":
            above = math.log(max(value, low) / low) / math.log(high / low)
        else:
            above = (max(value, low) - low) / (high - low)
        share = ZERO_SHARE if self.zero else 0.0
        return share + (1 - share) * above


_SIZES = (10, 30, 50, 70, 90)
_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)

#: All that can be searched for runs on a knowledge graph; the first five with the paper's ranges.
HYPERPARAMETERS = (
    Hyperparameter("alpha1", "linear", (0.0, 1.0), zero=True),
    Hyperparameter("alpha2", "log", (0.01, 100.0), zero=True),
    Hyperparameter("alpha3", "log", (0.01, 100.0), zero=True),
    Hyperparameter("cache_size", "grid", _SIZES),
    Hyperparameter("candidates", "grid", _SIZES),
    Hyperparameter("rescale", "choice", ("quantile", "none")),
    Hyperparameter("known_positives", "choice", ("exclude", "allow")),
    Hyperparameter("dim", "grid", (50, 100, 200)),
    Hyperparameter("lr", "grid", _RATES),
    Hyperparameter("batch_size", "grid", (1024, 2048, 4096)),
    Hyperparameter("margin", "grid", (1, 2, 3, 4), when={"loss": ("margin",)}),
    Hyperparameter("l2", "grid", (0.001, 0.01, 0.1), when={"loss": ("logistic",)}),
)
#: The same for embeddings of nodes; temperatures above 3 spoil the skip-gram model.
NODE_HYPERPARAMETERS = (
    Hyperparameter("negatives", "grid", (1, 2, 3, 5, 8)),
    Hyperparameter("alpha2", "log", (0.01, 3.0), zero=True),
    Hyperparameter("alpha3", "log", (0.01, 3.0), zero=True),
    Hyperparameter("cache_size", "grid", _SIZES),
    Hyperparameter("candidates", "grid", _SIZES),
    Hyperparameter("fresh", "choice", ("frequency", "uniform")),
    Hyperparameter("cached_neighbours", "choice", ("allow", "exclude")),
    Hyperparameter("update_every", "grid", (1, 2, 4, 8)),
    Hyperparameter("rescale", "choice", ("quantile", "none")),
)

#: The first trial of the paper's search: as near to Bernoulli sampling as a cache comes. Searches
#: of our first version begin with it too.
PAPERS_FIRST: Mapping[str, Any] = {
    "alpha1": 0.0,
    "alpha2": 0.0,
    "alpha3": 0.0,
    "cache_size": 50,
    "candidates": 50,
    "rescale": "quantile",
    "known_positives": "exclude",
}

_CACHE = ("alpha1", "alpha2", "alpha3", "cache_size", "candidates")
_NODES = ("negatives", "alpha2", "alpha3", "cache_size", "candidates")
#: The named spaces: the sampler they are searched under, and their hyperparameters.
SPACES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "sampler": ("nscaching", _CACHE),
    "sampler+": ("nscaching", (*_CACHE, "rescale", "known_positives")),
    "model": ("bernoulli", ("dim", "lr", "batch_size", "margin", "l2")),
}
NODE_SPACES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "nodes": ("nscaching", _NODES),
    "nodes+": (
        "nscaching",
        (*_NODES, "fresh", "cached_neighbours", "update_every", "rescale"),
    ),
}


@dataclass(frozen=True)
class SearchSpace:
    """The hyperparameters of a search and the sampler it is made under."""

    hyperparameters: tuple[Hyperparameter, ...]
    sampler: str

    @classmethod
    def build(cls, name: str, base: Options, fixed: Mapping[str, Any]) -> SearchSpace:
        """Return a named space without the options that are fixed; it starts at the base."""
        of_nodes = name in NODE_SPACES
        sampler, names = (NODE_SPACES if of_nodes else SPACES)[name]
        table = {row.name: row for row in (NODE_HYPERPARAMETERS if of_nodes else HYPERPARAMETERS)}
        asked = fixed.get("sampler", sampler)
        if asked != sampler:
            raise UserError(
                f"The space '{name}' is searched under the sampler {sampler}, not {asked}. "
                "Drop --sampler, or choose another --space."
            )
        open_names = [each for each in names if each not in fixed]
        free = [table[each] for each in open_names if _applies(table[each], base, open_names)]
        if not free:
            raise UserError(
                f"Every option of the space '{name}' is given a value, so nothing is left to "
                "search; drop some of them."
            )
        own = {each.name: getattr(base, each.name) for each in free}
        return cls(tuple(_fitted(each, own).starting_at(own[each.name]) for each in free), sampler)

    def names(self) -> list[str]:
        """Return the names of the searched options."""
        return [each.name for each in self.hyperparameters]

    def options(self, positions: Mapping[str, Position]) -> dict[str, Any]:
        """Return the training options of a point; what does not apply at it is left out."""
        return {
            each.name: each.value(positions[each.name])
            for each in self.hyperparameters
            if each.name in positions
        }


def _applies(row: Hyperparameter, base: Options, searched: Sequence[str]) -> bool:
    """Tell whether the condition of a hyperparameter holds for the options that are not searched.

    A condition on an option that is itself searched is left to the optimiser.
    """
    for name, values in (row.when or {}).items():
        if name in searched:
            continue
        value = getattr(base, name)
        if name == "loss" and value == "auto" and isinstance(base, TrainConfig):
            value = SCORING[base.scoring].usual_loss
        if value not in values:
            return False
    return True


def _fitted(row: Hyperparameter, own: Mapping[str, Any]) -> Hyperparameter:
    """Return the grid of batch sizes that suits the graph: smaller ones for a small graph."""
    if row.name != "batch_size":
        return row
    smallest = min(own["batch_size"] or _SMALLEST_BATCH, _SMALLEST_BATCH)
    return replace(row, values=(smallest, 2 * smallest, 4 * smallest))
