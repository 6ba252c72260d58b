"""Valid MRR by options, on any graphs: how the rules of recipes were chosen. Test is not ranked.

    python benchmarks/options_on_valid.py --graphs world --set n3=0.05,0.1 --seeds 0 1 --out FILE

Every combination of the values given is trained. A line per run; runs that the file holds already
are not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import yaml

import nscaching as ns
from nscaching.runs.api import make_trainer
from nscaching.training import Progress


def trained(graph: str, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Train once and return the best epoch on valid."""
    given = {"seed": seed, "progress": Progress("none"), **options}
    trainer = make_trainer(ns.load_graph(graph), out=None, **given)
    trainer.run(resume=False)
    counters, config = trainer.counters, trainer.config
    best = counters.best_valid or {}
    return {
        "graph": graph,
        "seed": seed,
        "options": options,
        "valid_mrr": round(best["mrr"], 4),
        "best_epoch": counters.best_epoch,
        "epochs_trained": counters.epoch,
        "recipe": config.recipe,
        "dim": config.dim,
        "n3": config.n3,
        "relation_prediction": config.relation_prediction,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE,VALUE")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    values = {
        name: [yaml.safe_load(value) for value in listed.split(",")]
        for name, _, listed in (each.partition("=") for each in asked.set)
    }
    lines = asked.out.read_text().splitlines() if asked.out.exists() else []
    done = [{k: json.loads(line)[k] for k in ("graph", "seed", "options")} for line in lines]
    for graph, seed, *chosen in itertools.product(asked.graphs, asked.seeds, *values.values()):
        options = dict(zip(values, chosen, strict=True))
        if {"graph": graph, "seed": seed, "options": options} not in done:
            line = json.dumps(trained(graph, seed, options))
            print(line, flush=True)
            with asked.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
