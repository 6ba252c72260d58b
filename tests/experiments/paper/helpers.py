"""Reproductions small enough for a test."""

import copy
from dataclasses import replace

from nscaching.experiments.paper import api, definition, reproduce
from nscaching.experiments.paper.plan import Request

#: Which part of a definition a smoke test runs: enough for every way a cell is made.
SLICES = {
    "table-7": {"dataset": ["WN18"], "scoring": ["transe"]},
    "table-8": {"dataset": ["WN18RR"], "scoring": ["simple"], "mode": ["scratch"]},
    "table-9": {"dataset": ["FB15K-237"]},
    "table-11": {"dataset": ["cora"], "sampler": ["LINE", "NSCaching"], "budget": 1},
    "figure-4": {"dataset": ["WN18"], "sampler": ["bernoulli", "nscaching"]},
    "figure-5": {"dataset": ["WN18RR"], "sampler": ["bernoulli", "nscaching"]},
    "figure-8": {"dataset": ["WN18RR"]},
    "figure-10": {"dataset": ["WN18RR"]},
    "figure-13": {"scoring": ["simple"]},
    "figure-14": {"dataset": ["WN18RR"]},
    "losses": {"dataset": ["WN18RR"], "scoring": ["transe", "transd", "complex"]},
}


def thinned(name):
    """Return a definition in which at most two values of an option are tried."""
    groups = copy.deepcopy(definition(name).groups)
    for variant in (variant for group in groups for variant in group["variants"]):
        for part in ("vary", "together"):
            for option, values in variant.get(part, {}).items():
                variant[part][option] = values[:2]
    return replace(definition(name), groups=groups)


def request(name, out, **asked):
    """Ask for a slice on a random graph of a few hundred triples, two epochs a run."""
    given = {"budget": 2, "trials": 3, "device": "cpu", "on": "shape/400", **SLICES.get(name, {})}
    return Request(out=out, **{**given, **asked})


def smoke(monkeypatch, name, out, **asked):
    """Reproduce a thinned slice."""
    monkeypatch.setattr(api, "definition", thinned)
    return reproduce(name, request(name, out, **asked), progress="none")
