"""Steps of a sharded run on 1, 2 and 4 processes of one machine, against the cost model.

    python benchmarks/large/processes.py --data fb15k-237 --processes 1 2 4 --out out.json

For each number of processes: seconds per step, the part that communication takes, bytes that a
process sends against the formula, and peak memory of each process against its plan.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
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
from nscaching.distributed.launch import joined
from nscaching.runs.api import make_config, recipe_config
from nscaching.training import Progress, Trainer
from nscaching.training.memory import peak_bytes
from nscaching.training.opening import open_graph


def options_of(given: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the run."""
    options = {**METHODS[given.method], "data": given.data, "dim": given.dim}
    options |= {"strata": given.strata, "recipe": "paper", "device": given.device}
    return {**options, **json.loads(given.options)}


def take_steps(given: argparse.Namespace) -> None:
    """Take some steps as one process of a group; rank 0 prints what all of them saw."""
    with joined(given.device) as group:
        options = options_of(given)
        graph = open_graph(make_config(None, options))
        config = recipe_config(options, None, graph, Progress("none"))
        trainer = Trainer(graph, config, None, Progress("none"))
        trainer.sampler.prepare(trainer.model, trainer.generator)
        trainer.executor.begin_epoch(trainer.sampler.begin_epoch(0, trainer.generator), 0)
        exchange = trainer.placement.shards.exchange  # type: ignore[attr-defined]
        for _ in range(5):
            trainer.executor.step()
        trainer.executor.loss()
        group.barrier()
        exchange.bytes_sent, exchange.seconds = 0, 0.0
        started, worked = time.perf_counter(), time.process_time()
        for _ in range(given.steps):
            trainer.executor.step()
        trainer.executor.loss()
        told = {
            "seconds": (time.perf_counter() - started) / given.steps,
            "cpu_seconds": (time.process_time() - worked) / given.steps,
            "communication_seconds": exchange.seconds / given.steps,
            "bytes_sent": exchange.bytes_sent / given.steps,
            "peak_bytes": peak_bytes(),
        }
        ranks = group.gather(told)
        if group.rank == 0:
            plan = plan_process(graph, config, group.size)
            print(json.dumps({"ranks": ranks, "plan_bytes": plan.total, "plan": plan.parts}))


def measure(processes: int, given: argparse.Namespace, step_seconds: float) -> dict[str, Any]:
    """Start so many processes; return their mean beside what the model expects."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), *sys.argv, "--worker"]
    threads = str(max(1, len(os.sched_getaffinity(0)) // processes))
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads}
    ran = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    told = json.loads(ran.stdout.strip().splitlines()[-1])
    ranks = told["ranks"]
    mean = {name: sum(rank[name] for rank in ranks) / len(ranks) for name in ranks[0]}
    options = options_of(given)
    graph = open_graph(make_config(None, options))
    config = recipe_config(options, None, graph, Progress("none"))
    cost = expected_cost(graph, config, processes, Network(), step_seconds)
    assert cost.compute_seconds is not None
    return {
        "data": given.data,
        "method": given.method,
        "processes": processes,
        **mean,
        "peak_bytes": max(rank["peak_bytes"] for rank in ranks),
        "plan_bytes": told["plan_bytes"],
        "bytes_formula": bytes_per_step(graph, config, processes)[0],
        "seconds_expected": cost.compute_seconds + cost.communication_seconds,
        "communication_seconds_expected": cost.communication_seconds,
    }


def main() -> None:
    """Measure each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="world")
    parser.add_argument("--method", default="transe", choices=list(METHODS))
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--strata", type=int, default=8)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--options", default="{}", help="more options, as JSON")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", action="store_true")
    given = parser.parse_args()
    os.environ.setdefault("NSCACHING_WARM_UP", "0")
    if given.worker:
        take_steps(given)
        return
    options = options_of(given)
    graph = open_graph(make_config(None, options))
    config = recipe_config(options, None, graph, Progress("none"))
    lines = []
    for processes in given.processes:
        line = measure(processes, given, time_step(graph, config, processes))
        print(json.dumps(line), flush=True)
        lines.append(line)
    if given.out is not None:
        given.out.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
