"""Softmax over all entities, over cached and over uniform ones: MRR against seconds of training.

    python benchmarks/candidates.py --graphs world WN18RR --device cuda --seeds 3 --out FILE

Settings are those of the recipes, without relation prediction, and of ``--options``; uniform
candidates are as many as the cached ones with their pool. A line per run has the curve on valid,
the test MRR, the seconds in epochs, the recall of the hardest entities where there is a cache, and
on a GPU the memory beside the plan of ``--dry-run``. Over all entities of a graph with more than
``--most-entities``, and with ``--timed``, no run is made: some steps are timed.
"""

from __future__ import annotations

import argparse
import gc
import json
from pathlib import Path
from typing import Any

import torch

import nscaching as ns
from nscaching.runs.api import make_trainer, recipe_config
from nscaching.training import Progress
from nscaching.training.benchmarking import time_run
from nscaching.training.memory import plan_memory
from nscaching.training.recipes import with_recipe
from nscaching.training.tracing.snapshots import recall_of_the_hardest

TIMED_STEPS = {"cuda": 60, "cpu": 20}


def settings(graph: ns.KnowledgeGraph, kind: str, device: str, given: dict) -> dict:
    """Return the options of one kind of candidates; those given win."""
    recipe = "all-entities" if kind == "all" else "cached"
    own = set() if kind == "cached" else {"cache_size", "cache_memory"}
    own |= {"pool"} if kind == "all" else set()
    wanted = {name: value for name, value in given.items() if name not in own}
    plain = {"recipe": recipe, "device": device, "relation_prediction": 0.0}
    options, _ = with_recipe({**plain, **wanted}, graph)
    if kind == "uniform":
        size = given.get("cache_size", options.pop("cache_size")) + options["pool"]
        for name in ("rescale", "alpha3"):
            options.pop(name)
        options |= {"sampler": "uniform", "pool": min(size, graph.num_entities)}
    return options


def memory(graph: ns.KnowledgeGraph, options: dict[str, Any], device: str) -> dict:
    """Return the gigabytes that a GPU held at most in a run, beside the plan."""
    if device == "cpu" or not torch.cuda.is_available():
        return {}
    planned = plan_memory(graph, recipe_config(options, graph, graph, Progress("none")))
    on_host = planned.parts["program"] + planned.parts["graph"]
    held = torch.cuda.max_memory_allocated()
    return {"gpu_gb": held / 1e9, "planned_gpu_gb": (planned.total - on_host) / 1e9}


def timed(graph: ns.KnowledgeGraph, kind: str, options: dict[str, Any], device: str) -> dict:
    """Time steps where epochs would take hours."""
    config = recipe_config(options, graph, graph, Progress("none"))
    seconds = time_run(graph, config, epochs=2, most_steps=TIMED_STEPS[device]).as_dict()
    line = {"graph": graph.name, "entities": graph.num_entities, "candidates": kind}
    return {
        **line,
        **seconds,
        "device": device,
        "options": options,
        **memory(graph, options, device),
    }


def measured(name: str, kind: str, device: str, seed: int, given: dict, most: dict) -> dict:
    """Train once and rank the test facts."""
    graph = ns.load_graph(name)
    options = settings(graph, kind, device, given)
    if graph.num_entities > most.get(kind, graph.num_entities):
        return timed(graph, kind, options, device)
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
        "tail_mrr": report.tail.mrr,
        "hits@10": report.hits_at_10,
        "options": {key: value for key, value in options.items() if key != "data"},
    }
    if kind == "cached":
        line["recall"] = recall_of_the_hardest(trainer.model, trainer.sampler, seed)
    return line | memory(graph, options, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=["world"])
    parser.add_argument("--kinds", nargs="+", default=["all", "cached", "uniform"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--options", type=json.loads, default={}, help="of train, as JSON")
    parser.add_argument("--most-entities", type=int, default=200_000)
    parser.add_argument("--timed", action="store_true", help="time steps, whatever the candidates")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    most = dict.fromkeys(asked.kinds, 0) if asked.timed else {"all": asked.most_entities}
    with asked.out.open("a") as file:
        for name in asked.graphs:
            for kind in asked.kinds:
                for seed in range(1, asked.seeds + 1):
                    gc.collect()  # the run before
                    if torch.cuda.is_available():
                        torch.cuda.empty_cache()
                        torch.cuda.reset_peak_memory_stats()
                    given = asked.options, most
                    line = measured(name, kind, asked.device, seed, *given)
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    shown = ("graph", "candidates", "seed", "mrr", "epoch_seconds", "gpu_gb")
                    print({key: line[key] for key in shown if key in line}, flush=True)


if __name__ == "__main__":
    main()
