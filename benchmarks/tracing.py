"""What tracing costs: epochs with and without it, alternating in one process.

    python benchmarks/tracing.py WN18RR --sampler nscaching --rounds 4

Prints one JSON object: seconds of a step by both clocks, medians, and the share that tracing adds.
``processor`` counts the time of all threads, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from dataclasses import replace

import nscaching as ns
from nscaching.training import Progress, TrainConfig, Trainer
from nscaching.training.benchmarking import describe_machine


def run_epoch(trainer: Trainer, epoch: int) -> tuple[float, float]:
    """Train one epoch, with the line of its trace; return the seconds of both clocks."""
    wall, processor = time.perf_counter(), time.process_time()
    order = trainer.sampler.begin_epoch(epoch, trainer.generator)
    trainer.executor.begin_epoch(order, 0)
    for _ in range(math.ceil(len(order) / trainer.config.batch_size)):
        trainer.executor.step()
    trainer.executor.loss()  # waits for the device
    if trainer.tracer is not None:
        trainer.tracer.end_epoch(epoch + 1, trainer.model, trainer.sampler)
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="WN18RR")
    parser.add_argument("--scoring", default="simple")
    parser.add_argument("--sampler", default="nscaching")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    graph = ns.load_graph(given.data)
    config = TrainConfig(
        data=given.data,
        scoring=given.scoring,
        sampler=given.sampler,
        dim=given.dim,
        l2=0.0,
        batch_size=given.batch_size,
        device=given.device,
    )
    trainers = {
        name: Trainer(graph, replace(config, trace=name == "traced"), None, Progress("none"))
        for name in ("plain", "traced")
    }
    for trainer in trainers.values():
        trainer.sampler.prepare(trainer.model, trainer.generator)
        run_epoch(trainer, 0)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in trainers}
    for number in range(given.rounds):
        for name in sorted(trainers, reverse=number % 2 == 1):
            seconds[name].append(run_epoch(trainers[name], number + 1))
    steps = math.ceil(len(graph.train) / config.batch_size)
    result: dict[str, object] = {"machine": describe_machine(str(trainers["plain"].device))}
    for place, clock in enumerate(("wall", "processor")):
        step = {
            name: statistics.median(t[place] for t in seconds[name]) / steps for name in seconds
        }
        added = step["traced"] / step["plain"] - 1
        result[clock] = {"step_seconds": step, "added_share": added}
    print(json.dumps({"arguments": vars(given), **result}, indent=2))


if __name__ == "__main__":
    main()
