"""What a search is told, apart from the training options that stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nscaching.experiments.tune.space import NODE_SPACES, SPACES
from nscaching.options import Options, option

METHODS = ("smac", "random", "smac-mf")
#: What trials on a knowledge graph can be compared by, with their names for people.
METRICS = {
    "mrr": "MRR",
    "hits@1": "Hits@1",
    "hits@3": "Hits@3",
    "hits@10": "Hits@10",
    "accuracy": "accuracy",
}
#: How workers of this machine are made; auto is threads on a GPU, which they share from one
#: process, and processes on the CPU.
WORKERS_AS = ("auto", "processes", "threads")
#: What a resumed search may change: its length.
MAY_CHANGE = {"trials", "seconds"}


@dataclass(kw_only=True)
class CommonOptions(Options):
    """How a search goes; the seed and the epochs of a trial are the training's own."""

    trials: int = option(50, "Configurations to try.", group="Search", low=1)
    seconds: float | None = option(
        None,
        "Stop after so many seconds; the trial in training then ends with its epoch. By default "
        "only --trials is a limit.",
        group="Search",
        above=0,
    )
    method: str = option(
        "smac",
        "smac; random, the baseline; or smac-mf, which stops trials that start badly early.",
        group="Search",
        choices=METHODS,
    )
    min_epochs: int = option(
        0,
        "For smac-mf: the fewest epochs of a trial; 0 is as few as the trials allow.",
        group="Search",
        low=0,
    )


@dataclass(kw_only=True)
class SearchOptions(CommonOptions):
    """How a search on a knowledge graph goes."""

    space: str = option(
        "sampler",
        "sampler: the paper's five hyperparameters of the cache; sampler+: rescale and known "
        "positives too; model: dim, lr, batch size and margin or l2 under Bernoulli; nodes, "
        "nodes+: embeddings of nodes (see 'nscaching nodes tune').",
        group="Search",
        choices=(*SPACES, *NODE_SPACES),
    )
    select: str = option(
        "mrr", "Validation metric that trials are compared by.", group="Search", choices=METRICS
    )


@dataclass(kw_only=True)
class NodeSearchOptions(CommonOptions):
    """How a search for node embeddings goes."""

    space: str = option(
        "nodes",
        "nodes: N, N1, N2, alpha2, alpha3; nodes+: also where fresh nodes come from, neighbours in "
        "the cache, how often it is updated, and rescale.",
        group="Search",
        choices=tuple(NODE_SPACES),
    )
    seeds: int = option(
        3, "Trainings of each configuration; their mean score counts.", group="Search", low=1
    )


AnyOptions = SearchOptions | NodeSearchOptions


def read_options(given: Mapping[str, Any], source: str) -> AnyOptions:
    """Return the checked options of a search; what can be said depends on its space."""
    if given.get("space") in NODE_SPACES:
        return NodeSearchOptions.from_mapping(given, source)
    return SearchOptions.from_mapping(given, source)
