"""What is searched: the options of a search, hyperparameters, and named spaces of them.

To search a new option, add a row to ``spaces.yaml``. The value that the configuration being
tuned has is always in its range, because the first trial has it.

Every hyperparameter has a *position*, which the optimiser moves, and a *value*, which training
takes. They differ for numbers: positions go from 0 to 1. An exact zero is another algorithm for the
temperatures (a plain shuffle, a uniform choice) and must be reachable: where ``zero`` is set, the
lowest fifth of the positions means 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from nscaching.errors import UserError
from nscaching.models import SCORING
from nscaching.options import OptionGroup, Options
from nscaching.training import TrainConfig

#: Share of the positions that mean exactly zero, where zero is a value.
ZERO_SHARE = 0.2
#: The smallest batch size in the paper's grid, unless the base has a smaller one.
_SMALLEST_BATCH = 1024

Position = float | str


@dataclass(frozen=True)
class Hyperparameter:
    """One row of a table: what is searched, over which values, and under which condition."""

    name: str  #: of the option
    #: ``linear`` and ``log``: between two ends; ``grid``: these, in order; ``around``: these times
    #: the value of the base; ``choice``: these, in no order.
    scale: str
    values: tuple[Any, ...]  #: the two ends, or all values
    zero: bool = False  #: for linear and log: whether exactly 0 is a value too
    when: Mapping[str, Sequence[Any]] | None = None  #: only where these options have these values
    first: Any = None  #: of the first trial

    @property
    def is_number(self) -> bool:
        """Whether positions go from 0 to 1."""
        return self.scale in ("linear", "log")

    def starting_at(self, value: Any) -> Hyperparameter:
        """Return it with the value of the first trial, which is added to the range if need be."""
        if self.scale == "around":
            near = set() if value is None else {value, *(_times(value, x) for x in self.values)}
            return replace(self, scale="grid", values=tuple(sorted(near)), first=value)
        if value is None:  # decided by training
            return replace(self, first=self.values[len(self.values) // 2])
        if not self.is_number:
            values = self.values if value in self.values else (*self.values, value)
            ordered = tuple(sorted(values)) if self.scale == "grid" else values
            return replace(self, values=ordered, first=value)
        low, high = self.values
        if value != 0 and math.isfinite(value):
            low, high = min(low, value), max(high, value)
        return replace(self, values=(low, high), zero=self.zero or value == 0, first=value)

    def value(self, position: Position) -> Any:
        """Return the value that training takes; numbers have the four digits that matter."""
        if not self.is_number:
            return position
        if self.first is not None:
            start = self.position(self.first)
            if math.isclose(float(position), start, abs_tol=1e-9):  # exactly, all digits
                return self.first
        share = ZERO_SHARE if self.zero else 0.0
        above = (float(position) - share) / (1 - share)
        if self.zero and above <= 0:
            return 0.0
        low, high = self.values
        number = low * (high / low) ** above if self.scale == "log" else low + (high - low) * above
        return float(f"{number:.4g}")

    def position(self, value: float) -> float:
        """Return the position of a number; one out of range goes to its end."""
        if self.zero and value <= 0:
            return 0.0
        low, high = self.values
        value = min(max(value, low), high)
        if self.scale == "log":
            above = math.log(value / low) / math.log(high / low)
        else:
            above = (value - low) / (high - low)
        share = ZERO_SHARE if self.zero else 0.0
        return float(share + (1 - share) * above)


def _times(value: Any, factor: float) -> Any:
    """Return a multiple of a value; of a whole number a whole one, and at least 1."""
    if isinstance(value, int):
        return max(1, round(value * factor)) if value else 0
    return float(f"{value * factor:.4g}")


class Space(NamedTuple):
    """A named space."""

    sampler: str | None  #: that it is searched under; None: that of the base
    hyperparameters: tuple[Hyperparameter, ...]


def _spaces() -> dict[str, Space]:
    read = yaml.safe_load(files(__package__).joinpath("spaces.yaml").read_text(encoding="utf-8"))
    return {
        name: Space(
            space["sampler"],
            tuple(
                Hyperparameter(option, **{**row, "values": tuple(row["values"])})
                for option, row in space["rows"].items()
            ),
        )
        for name, space in read.items()
    }


#: Stands for the space that fits the recipe until the graph is known.
AUTO = "auto"
SPACES: Mapping[str, Space] = _spaces()
GRAPH_SPACES, NODE_SPACES = ("recipe", "sampler", "sampler+", "model"), ("nodes", "nodes+")
#: The first trial of the paper's search: as near to Bernoulli sampling as a cache comes. Searches
#: of our first version, which had the spaces sampler and sampler+, begin with it too.
PAPERS_FIRST: Mapping[str, Any] = {
    **dict.fromkeys(("alpha1", "alpha2", "alpha3"), 0.0),
    **dict.fromkeys(("cache_size", "candidates"), 50),
    "rescale": "quantile",
    "known_positives": "exclude",
}


class SearchSpace(dict[str, Hyperparameter]):
    """The hyperparameters of a search, by name."""

    @classmethod
    def build(cls, name: str, base: Options, fixed: Mapping[str, Any]) -> SearchSpace:
        """Return a named space without the options that are fixed; it starts at the base."""
        sampler, table = SPACES[name]
        asked = fixed.get("sampler", sampler)
        if sampler is not None and asked != sampler:
            raise UserError(
                f"The space '{name}' is searched under the sampler {sampler}, not {asked}. "
                "Drop --sampler, or choose another --space."
            )
        unread = {"candidates"} if getattr(base, "pool", 0) else set()  # the pool replaces them
        searched = [row for row in table if row.name not in {*fixed, *unread}]
        names = [row.name for row in searched]
        rows = [
            _fitted(row, base).starting_at(getattr(base, row.name))
            for row in searched
            if _applies(row, base, names)
        ]
        space = cls({row.name: row for row in rows if len(row.values) > 1})
        if not space:
            raise UserError(
                f"Every option of the space '{name}' is given a value, so nothing is left to "
                "search; drop some of them."
            )
        return space

    def options(self, positions: Mapping[str, Position]) -> dict[str, Any]:
        """Return the training options of a point, without those that do not apply at it."""
        return {name: row.value(positions[name]) for name, row in self.items() if name in positions}


def _applies(row: Hyperparameter, base: Options, searched: Sequence[str]) -> bool:
    """Tell whether the condition of a hyperparameter holds for the options that are not searched.

    A condition on an option that is itself searched is left to the optimiser.
    """
    for name, values in (row.when or {}).items():
        value = getattr(base, name)
        if name == "loss" and isinstance(base, TrainConfig):
            value = base.loss_name(SCORING[base.scoring].usual_loss)
        if name not in searched and value not in values:
            return False
    return True


def _fitted(row: Hyperparameter, base: Options) -> Hyperparameter:
    """Return the paper's grid of batch sizes as it suits the graph: smaller for a small graph."""
    if row.name != "batch_size" or row.scale != "grid":
        return row
    smallest = min(getattr(base, row.name) or _SMALLEST_BATCH, _SMALLEST_BATCH)
    return replace(row, values=(smallest, 2 * smallest, 4 * smallest))


# What a search is told, apart from the training options ------------------------------------------

METHODS = ("smac", "random", "smac-mf")
_search = OptionGroup("Search")


@dataclass(kw_only=True)
class CommonOptions(Options):
    """How a search goes; the seed and the epochs of a trial are the training's own."""

    trials: int = _search(50, "Configurations to try.", low=1)
    seconds: float | None = _search(
        None,
        "Stop after so many seconds; the trial in training then ends with its epoch. By default "
        "only --trials is a limit.",
        above=0,
    )
    method: str = _search(
        "smac",
        "smac; random, the baseline; or smac-mf, which stops trials that start badly early.",
        choices=METHODS,
    )
    min_epochs: int = _search(
        0, "For smac-mf: the fewest epochs of a trial; 0 is as few as the trials allow.", low=0
    )


@dataclass(kw_only=True)
class SearchOptions(CommonOptions):
    """How a search on a knowledge graph goes."""

    space: str = _search(
        AUTO,
        "recipe: what the model, the loss and the cache of the recipe have; sampler: the paper's "
        "five hyperparameters of the cache; sampler+: rescale and known positives too; model: dim, "
        "lr, batch size and margin or l2 under Bernoulli; nodes, nodes+: embeddings of nodes (see "
        "'nscaching nodes tune'); auto: sampler for the paper's recipe, else recipe.",
        choices=(AUTO, *GRAPH_SPACES, *NODE_SPACES),
    )


@dataclass(kw_only=True)
class NodeSearchOptions(CommonOptions):
    """How a search for node embeddings goes."""

    space: str = _search(
        "nodes",
        "nodes: N, N1, N2, alpha2, alpha3; nodes+: also where fresh nodes come from, neighbours in "
        "the cache, how often it is updated, and rescale.",
        choices=NODE_SPACES,
    )
    seeds: int = _search(3, "Trainings of each configuration; their mean score counts.", low=1)


AnyOptions = SearchOptions | NodeSearchOptions


def read_options(given: Mapping[str, Any], source: str) -> AnyOptions:
    """Return the checked options of a search; what can be said depends on its space."""
    kind = NodeSearchOptions if given.get("space") in NODE_SPACES else SearchOptions
    return kind.from_mapping(given, source)
