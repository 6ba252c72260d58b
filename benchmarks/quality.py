"""MRR by options, on any graphs: how recipes were chosen on valid, and what they reach on test.

    python benchmarks/quality.py --graphs world --set n3=0.05,0.1 --seeds 0 1 --out FILE
    python benchmarks/quality.py --runs benchmarks/quality.yaml --only valid --out FILE

``--set`` trains every combination of the values given. ``--runs`` is a list of runs with a name, a
graph, seeds, options, and whether the test split is ranked: that happens only where settings were
chosen before. A line per run; runs that the file holds already are not repeated. ``--workers``
processes train at once, each run in a new one (Python 3.11); none begins a run after ``--until``
seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
import yaml

import nscaching as ns
from nscaching.runs.api import make_trainer
from nscaching.training import Progress

Run = dict[str, Any]
#: What a recipe decides and a line therefore tells.
DECIDED = (
    *("recipe", "scoring", "sampler", "dim", "batch_size", "n3", "relation_prediction"),
    "valid_facts",  # of which valid_mrr is; None is all
)
IDENTITY = ("name", "graph", "seed", "options", "test")


def trained(run: Run, threads: int, until: float) -> Run | None:
    """Train once and return the best epoch on valid, and with ``test`` that model's ranks there."""
    if time.time() > until:
        return None
    if threads:
        torch.set_num_threads(threads)
    start = time.perf_counter()
    given = {"seed": run["seed"], "progress": Progress("none"), **run["options"]}
    graph = ns.load_graph(os.path.expandvars(run["graph"]))
    trainer = make_trainer(graph, out=None, **given)
    trainer.run(resume=False)
    counters, config = trainer.counters, trainer.config
    best = counters.best_valid or {}
    line = {
        **run,
        "device": trainer.device.type,
        "valid_mrr": round(best.get("mrr", 0.0), 5),
        "valid_hits@10": round(best.get("hits@10", 0.0), 5),
        "best_epoch": counters.best_epoch,
        "epochs_trained": counters.epoch,
        "epoch_seconds": round(counters.epoch_seconds, 1),
        "decided": {option: getattr(config, option) for option in DECIDED},
    }
    if run["test"]:
        report = trainer.validation.rank(trainer.best_model(), "test")
        line |= {"mrr": round(report.mrr, 5), "hits@10": round(report.hits_at_10, 5)}
    return {**line, "seconds": round(time.perf_counter() - start, 1)}


def listed(asked: argparse.Namespace) -> Iterator[Run]:
    """Yield the runs of the file, and those of the combinations."""
    for entry in yaml.safe_load(asked.runs.read_text()) if asked.runs else ():
        for seed in entry.get("seeds", [0]):
            run = {"name": entry["name"], "graph": entry["graph"], "seed": seed}
            run |= {"options": entry.get("options", {}), "test": bool(entry.get("test"))}
            if asked.only in run["name"]:
                yield run
    values = {
        name: [yaml.safe_load(value) for value in each.split(",")]
        for name, _, each in (given.partition("=") for given in asked.set)
    }
    for graph, seed, *chosen in itertools.product(asked.graphs, asked.seeds, *values.values()):
        options = dict(zip(values, chosen, strict=True))
        yield {"name": graph, "graph": graph, "seed": seed, "options": options, "test": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--only", default="", help="runs whose name holds this")
    parser.add_argument("--graphs", nargs="+", default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE,VALUE")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="of each; default torch's")
    parser.add_argument("--until", type=float, default=1e9, help="seconds; none begins later")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    until = time.time() + asked.until
    lines = asked.out.read_text().splitlines() if asked.out.exists() else []
    done = [{key: json.loads(line)[key] for key in IDENTITY} for line in lines]
    runs = [run for run in listed(asked) if run not in done]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.workers, spawn, max_tasks_per_child=1) as pool:
        for future in as_completed(
            [pool.submit(trained, run, asked.threads, until) for run in runs]
        ):
            if future.exception() is not None:
                print(f"failed: {future.exception()}", flush=True)
            elif (line := future.result()) is not None:
                print(json.dumps(line), flush=True)
                with asked.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
