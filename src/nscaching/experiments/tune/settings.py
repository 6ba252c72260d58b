"""What a search is told, apart from the training options that stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nscaching.experiments.tune.space import NODE_SPACES, SPACES
from nscaching.options import Options, option

METHODS = ("smac", "random", "smac-mf")
#: How workers of this machine are made; auto is threads on a GPU, which they share from one
#: process, and processes on the CPU.
WORKERS_AS = ("auto", "processes", "threads")


@dataclass(kw_only=True)
class SearchOptions(Options):
    """How a search goes; the seed and the epochs of a trial are the training's own."""

    trials: int = option(50, "Settings to try.", group="Search", low=1)
    method: str = option(
        "smac",
        "smac; random, the baseline; or smac-mf, which ends trials that start badly early.",
        group="Search",
        choices=METHODS,
    )
    space: str = option(
        "sampler",
        "sampler: the paper's five numbers; sampler+: rescale and known positives too; model: "
        "dim, lr, batch size and margin or l2 under Bernoulli; nodes, nodes+: embeddings "
        "of nodes (see 'nscaching nodes tune').",
        group="Search",
        choices=(*SPACES, *NODE_SPACES),
    )
    min_epochs: int = option(
        0,
        "For smac-mf: the fewest epochs a trial gets; 0 is as few as the trials allow.",
        group="Search",
        low=0,
    )


@dataclass(kw_only=True)
class NodeSearchOptions(SearchOptions):
    """How a search for node embeddings goes."""

    space: str = option(
        "nodes",
        "nodes: N, N1, N2, alpha2, alpha3; nodes+: also where fresh nodes come from, neighbours in "
        "the cache, how often it is updated, and rescale.",
        group="Search",
        choices=NODE_SPACES,
    )
    seeds: int = option(
        3, "Trainings of each setting; the mean of their scores counts.", group="Search", low=1
    )


def read_options(given: Mapping[str, Any], source: str) -> SearchOptions:
    """Return the checked options of a search; what can be said depends on its space."""
    kind = NodeSearchOptions if given.get("space") in NODE_SPACES else SearchOptions
    return kind.from_mapping(given, source)


#: What a resumed search may change: how long it goes on.
MAY_CHANGE = {"trials"}


def as_record(options: SearchOptions, fixed: dict[str, Any]) -> dict[str, Any]:
    """Return what ``search.yaml`` keeps; the first number of trials shapes the initial design."""
    return {**options.as_dict(), "planned_trials": options.trials, "fixed": fixed}
