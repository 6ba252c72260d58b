"""What is searched: named spaces of training options, free of any optimiser.

Every parameter has a *position*, which the optimiser moves, and a *value*, which training takes.
The two differ for the temperatures: their exact zero is another algorithm (a plain shuffle, a
uniform choice) and must be reachable. The lowest fifth of the positions means zero; the rest runs
evenly, or evenly in the logarithm, over the range. One number a temperature keeps the five of the
paper five, which a switch beside each would not.
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

#: Share of a temperature's positions that mean exactly zero.
ZERO_SHARE = 0.2

Position = float | str


@dataclass(frozen=True)
class Parameter:
    """One searched option; ``first`` is the value of the first trial."""

    name: str
    first: Any

    def hyperparameter(self) -> Any:
        """Return it as ConfigSpace knows it, over positions."""
        raise NotImplementedError

    def value(self, position: Position) -> Any:
        """Return the value that training takes at a position."""
        return position

    def position(self, value: Any) -> Position:
        """Return a position that has this value."""
        place: Position = value
        return place

    def has(self, value: Any) -> bool:
        """Tell whether a value is in its range."""
        raise NotImplementedError


@dataclass(frozen=True)
class ZeroOr(Parameter):
    """Zero, or a number between two bounds, searched evenly or on a logarithmic scale."""

    low: float
    high: float
    log: bool

    def hyperparameter(self) -> Any:
        """Return a uniform float over positions."""
        from ConfigSpace import Float

        return Float(self.name, (0.0, 1.0), default=self.position(self.first))

    def value(self, position: Position) -> float:
        """Return 0 for the lowest positions, else the number with the four digits that matter."""
        above = (float(position) - ZERO_SHARE) / (1 - ZERO_SHARE)
        if above <= 0:
            return 0.0
        if self.log:
            number = self.low * (self.high / self.low) ** above
        else:
            number = self.low + (self.high - self.low) * above
        return float(f"{number:.4g}")

    def position(self, value: Any) -> float:
        """Return the position of a value; what is out of range goes to its end."""
        if value <= 0:
            return 0.0
        if self.log:
            above = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            above = (value - self.low) / (self.high - self.low)
        return ZERO_SHARE + (1 - ZERO_SHARE) * min(1.0, max(0.0, above))

    def has(self, value: Any) -> bool:
        """Tell whether it is 0 or between the bounds."""
        return bool(value == 0 or self.low <= value <= self.high)


@dataclass(frozen=True)
class Grid(Parameter):
    """One of some numbers, in their order."""

    values: tuple[float, ...]

    def hyperparameter(self) -> Any:
        """Return an ordinal."""
        from ConfigSpace import OrdinalHyperparameter

        return OrdinalHyperparameter(self.name, self.values, default_value=self.first)

    def has(self, value: Any) -> bool:
        """Tell whether it is one of them."""
        return value in self.values


@dataclass(frozen=True)
class Choice(Parameter):
    """One of some words, in no order."""

    values: tuple[str, ...]

    def hyperparameter(self) -> Any:
        """Return a categorical."""
        from ConfigSpace import Categorical

        return Categorical(self.name, list(self.values), default=self.first)

    def has(self, value: Any) -> bool:
        """Tell whether it is one of them."""
        return value in self.values


_SIZES = (10, 30, 50, 70, 90)

#: The paper's five, with its first trial: as near to Bernoulli sampling as a cache comes.
SAMPLER = (
    ZeroOr("alpha1", 0.0, 0.0, 1.0, log=False),
    ZeroOr("alpha2", 0.0, 0.01, 100.0, log=True),
    ZeroOr("alpha3", 0.0, 0.01, 100.0, log=True),
    Grid("cache_size", 50, _SIZES),
    Grid("candidates", 50, _SIZES),
)
SAMPLER_PLUS = (
    *SAMPLER,
    Choice("rescale", "quantile", ("quantile", "none")),
    Choice("known_positives", "exclude", ("exclude", "allow")),
)
#: The paper's grid of the model's options; margin or l2 as the loss has it.
MODEL = (
    Grid("dim", 100, (50, 100, 200)),
    Grid("lr", 1e-3, (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)),
)
_SMALLEST_BATCH = 1024
_MARGIN = Grid("margin", 4, (1, 2, 3, 4))
_L2 = Grid("l2", 0.1, (0.001, 0.01, 0.1))

#: What the skip-gram model takes from the cache; temperatures above 3 spoil it.
NODES = (
    Grid("negatives", 5, (1, 2, 3, 5, 8)),
    ZeroOr("alpha2", 0.0, 0.01, 3.0, log=True),
    ZeroOr("alpha3", 1.0, 0.01, 3.0, log=True),
    Grid("cache_size", 50, _SIZES),
    Grid("candidates", 50, _SIZES),
)
NODES_PLUS = (
    *NODES,
    Choice("fresh", "frequency", ("frequency", "uniform")),
    Choice("cached_neighbours", "allow", ("allow", "exclude")),
    Grid("update_every", 2, (1, 2, 4, 8)),
    Choice("rescale", "quantile", ("quantile", "none")),
)

SPACES = ("sampler", "sampler+", "model")
NODE_SPACES = ("nodes", "nodes+")


@dataclass(frozen=True)
class SearchSpace:
    """The parameters of a search and the sampler it is made under."""

    parameters: tuple[Parameter, ...]
    sampler: str

    @classmethod
    def build(cls, name: str, base: Options, fixed: Mapping[str, Any]) -> SearchSpace:
        """Return a named space without the options that the user has fixed."""
        if isinstance(base, TrainConfig) and name == "model":
            found = _of_the_model(base)
        elif name in NODE_SPACES:
            parameters = NODES_PLUS if name == "nodes+" else NODES
            found = cls(_placed(parameters, base), "nscaching")
        else:
            found = cls(SAMPLER_PLUS if name == "sampler+" else SAMPLER, "nscaching")
        asked = fixed.get("sampler", found.sampler)
        if asked != found.sampler:
            raise UserError(
                f"The space '{name}' is searched under the sampler {found.sampler}, not {asked}. "
                "Leave --sampler out, or choose another --space."
            )
        free = tuple(each for each in found.parameters if each.name not in fixed)
        if not free:
            raise UserError(
                f"Every option of the space '{name}' is given a value, so nothing is left to "
                "search; leave some of them out."
            )
        return replace(found, parameters=free)

    def names(self) -> list[str]:
        """Return the names of the searched options."""
        return [parameter.name for parameter in self.parameters]

    def options(self, positions: Mapping[str, Position]) -> dict[str, Any]:
        """Return the training options of a point."""
        return {each.name: each.value(positions[each.name]) for each in self.parameters}


def _of_the_model(base: TrainConfig) -> SearchSpace:
    """Return the model's grid."""
    usual = SCORING[base.scoring].usual_loss
    loss = usual if base.loss == "auto" else base.loss
    smallest = min(base.batch_size or _SMALLEST_BATCH, _SMALLEST_BATCH)  # less on a small graph
    batches = Grid("batch_size", smallest, (smallest, 2 * smallest, 4 * smallest))
    grids = (*MODEL, batches, _MARGIN if loss == "margin" else _L2)
    return SearchSpace(_placed(grids, base), "bernoulli")


def _placed(parameters: Sequence[Parameter], base: Options) -> tuple[Parameter, ...]:
    """Let a search begin at the base's own values where the space has them."""
    own = {each.name: getattr(base, each.name) for each in parameters}
    return tuple(
        replace(each, first=own[each.name]) if each.has(own[each.name]) else each
        for each in parameters
    )
