"""Steps of a sharded run on 1, 2 and 4 processes of one machine, against the cost model.

    python benchmarks/large/processes.py --data fb15k-237 --processes 1 2 4 --out out.jsonl

For each number of processes and each method: seconds per step, the part that communication takes,
and bytes that a process sends against the formula. Peak memory of each process stands beside its
plan for the first method only: later ones are measured in the same processes. It is that of steps;
``benchmarks/large/peaks.py`` has that of whole runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from namespaces import METHODS

from nscaching.distributed.cost import (
    Network,
    bytes_per_step,
    expected_cost,
    plan_process,
    time_step,
)
from nscaching.processes import cores, joined
from nscaching.runs.api import make_config, recipe_config
from nscaching.training import Progress, Trainer
from nscaching.training.memory import peak_bytes
from nscaching.training.opening import open_graph


def settings(given: argparse.Namespace, method: str) -> tuple[Any, Any]:
    """Return the graph and the configuration of a method."""
    options = {**METHODS[method], "data": given.data, "dim": given.dim}
    options |= {"strata": given.strata, "recipe": "paper", "device": given.device}
    options |= json.loads(given.options)
    graph = _graphs.setdefault(given.data, None) or open_graph(make_config(None, options))
    _graphs[given.data] = graph
    return graph, recipe_config(options, None, graph, Progress("none"))


_graphs: dict[str, Any] = {}


def take_steps(given: argparse.Namespace) -> None:
    """Take some steps as one process of a group; rank 0 prints what all of them saw."""
    with joined(given.device) as group:
        for method in given.methods:
            graph, config = settings(given, method)
            ranks = group.gather(steps_of(Trainer(graph, config, None, Progress("none")), given))
            if group.rank == 0:
                plan = plan_process(graph, config, group.size)
                told = {"ranks": ranks, "plan_bytes": plan.total, "plan": plan.parts}
                print(json.dumps({"method": method, **told}), flush=True)


def steps_of(trainer: Trainer, given: argparse.Namespace) -> dict[str, float]:
    """Time some steps in this process."""
    trainer.sampler.prepare(trainer.model, trainer.generator)
    trainer.executor.begin_epoch(trainer.sampler.begin_epoch(0, trainer.generator), 0)
    exchange = trainer.placement.shards.exchange  # type: ignore[attr-defined]
    for _ in range(5):
        trainer.executor.step()
    trainer.executor.loss()
    trainer.placement.total(0.0)  # waits for the others
    exchange.bytes_sent, exchange.seconds = 0, 0.0
    started, worked = time.perf_counter(), time.process_time()
    for _ in range(given.steps):
        trainer.executor.step()
    trainer.executor.loss()
    return {
        "seconds": (time.perf_counter() - started) / given.steps,
        "cpu_seconds": (time.process_time() - worked) / given.steps,
        "communication_seconds": exchange.seconds / given.steps,
        "bytes_sent": exchange.bytes_sent / given.steps,
        "peak_bytes": peak_bytes(),
    }


def measure(processes: int, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Start so many processes; yield their mean beside what the model expects, by method."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), *sys.argv, "--worker"]
    threads = max(1, given.cores // processes)
    named = {name: str(threads) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")}
    environment = {**os.environ, **named}
    ran = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    for told in map(json.loads, ran.stdout.strip().splitlines()):
        ranks, (graph, config) = told["ranks"], settings(given, told["method"])
        mean = {name: sum(rank[name] for rank in ranks) / len(ranks) for name in ranks[0]}
        timed = time_step(graph, config, processes) if given.expect else None
        cost = expected_cost(graph, config, processes, Network(), timed)
        compute, waits = cost.compute_seconds, cost.communication_seconds
        yield {
            "data": given.data,
            "method": told["method"],
            "batch": config.batch(len(graph.train)),
            "processes": processes,
            "threads": threads,
            **mean,
            "peak_bytes": [rank["peak_bytes"] for rank in ranks],
            "plan_bytes": told["plan_bytes"],
            "bytes_formula": bytes_per_step(graph, config, processes)[0],
            "seconds_expected": None if compute is None else compute + waits,
            "communication_seconds_expected": waits,
        }


def main() -> None:
    """Measure each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="world")
    parser.add_argument("--methods", nargs="+", default=["transe"], choices=list(METHODS))
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--cores", type=int, default=cores(), help="that the processes share")
    parser.add_argument("--strata", type=int, default=8)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--options", default="{}", help="more options, as JSON")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--expect", action=argparse.BooleanOptionalAction, default=True,
                        help="time a step here, for the model")  # fmt: skip
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", action="store_true")
    given = parser.parse_args()
    os.environ.setdefault("NSCACHING_WARM_UP", "0")
    if given.worker:
        take_steps(given)
        return
    for processes in given.processes:
        for line in measure(processes, given):
            print(json.dumps(line), flush=True)
            if given.out is not None:
                with given.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
