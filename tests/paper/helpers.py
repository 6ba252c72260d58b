"""Reproductions small enough for a test."""

from nscaching.paper import reproduce
from nscaching.paper.planning import Request

#: Which part of a definition a smoke test runs: enough for every way a cell is made.
SLICES = {
    "table-7": {"datasets": ["WN18"], "scoring": ["transe"]},
    "table-8": {"datasets": ["WN18RR"], "scoring": ["simple"], "modes": ["scratch"]},
    "table-9": {"datasets": ["WN18RR"]},
    "table-11": {"datasets": ["cora"]},
    "figure-4": {"datasets": ["WN18", "FB15K"], "samplers": ["bernoulli", "nscaching"]},
    "figure-5": {"datasets": ["WN18RR"], "modes": ["scratch"]},
    "figure-8": {"datasets": ["WN18RR"]},
    "figure-13": {"scoring": ["simple"]},
}


def smoke(name, out, **asked):
    """Reproduce a slice on a random graph of a few hundred triples, two epochs a run."""
    given = {"budget": 2, "trials": 3, "device": "cpu", "on": "shape/400", **SLICES.get(name, {})}
    return reproduce(name, Request(out=out, **{**given, **asked}), progress="none")
