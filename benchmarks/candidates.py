"""Softmax over all entities, over cached and over uniform ones: MRR against seconds of training.

    python benchmarks/candidates.py --graphs world WN18RR --device cuda --seeds 3 --out FILE

Settings are those of the recipes; uniform candidates are as many as the cached ones with their
pool. A line per run has the curve on valid, the test MRR, the seconds in epochs, and the recall of
the hardest entities where there is a cache.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import nscaching as ns
from nscaching.runs.api import make_trainer
from nscaching.training import Progress
from nscaching.training.recipes import with_recipe
from nscaching.training.tracing.snapshots import recall_of_the_hardest


def settings(graph: ns.KnowledgeGraph, kind: str, device: str) -> dict:
    """Return the options of one kind of candidates."""
    recipe = "all-entities" if kind == "all" else "cached"
    options, _ = with_recipe({"recipe": recipe, "device": device}, graph)
    if kind == "uniform":
        size = options.pop("cache_size") + options["pool"]
        for name in ("rescale", "alpha3"):
            options.pop(name)
        options |= {"sampler": "uniform", "pool": min(size, graph.num_entities)}
    return options


def measured(name: str, kind: str, device: str, seed: int) -> dict:
    """Train once and rank the test facts."""
    graph = ns.load_graph(name)
    options = settings(graph, kind, device)
    trainer = make_trainer(graph, out=None, progress=Progress("none"), seed=seed, **options)
    curve = []
    trainer.after_epoch = lambda epoch: curve.append(
        (trainer.counters.epoch_seconds, (trainer.counters.best_valid or {}).get("mrr"))
    )
    trainer.run(resume=False)
    report = trainer.validation.rank(trainer.best_model(), "test")
    line = {
        "graph": name,
        "entities": graph.num_entities,
        "candidates": kind,
        "seed": seed,
        "device": device,
        "epoch_seconds": trainer.counters.epoch_seconds,
        "epochs": trainer.counters.epoch,
        "curve": curve,
        "mrr": report.mrr,
        "hits@10": report.hits_at_10,
        "options": {key: value for key, value in options.items() if key != "data"},
    }
    if kind == "cached":
        line["recall"] = recall_of_the_hardest(trainer.model, trainer.sampler, seed)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=["world"])
    parser.add_argument("--kinds", nargs="+", default=["all", "cached", "uniform"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    with asked.out.open("a") as file:
        for name in asked.graphs:
            for kind in asked.kinds:
                for seed in range(1, asked.seeds + 1):
                    line = measured(name, kind, asked.device, seed)
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    shown = {key: line[key] for key in ("graph", "candidates", "seed", "mrr")}
                    print(shown | {"seconds": round(line["epoch_seconds"], 1)}, flush=True)


if __name__ == "__main__":
    main()
