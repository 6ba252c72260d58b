"""Seconds per epoch of every sampler, one after another in one process.

    python benchmarks/samplers.py WN18RR --scoring transd --scoring simple

Prints one JSON object. Some steps are timed, after others that compile, and are taken for an epoch.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time

import nscaching as ns
from nscaching.sampling import SAMPLERS
from nscaching.training import Progress, TrainConfig, Trainer
from nscaching.training.benchmarking import describe_machine

#: Steps that compile, then steps that are timed; IGAN's are long.
STEPS = {"igan": (2, 4)}
USUAL_STEPS = (4, 60)


def epoch_seconds(graph: ns.KnowledgeGraph, config: TrainConfig) -> float:
    """Return what an epoch takes on the device of the configuration."""
    trainer = Trainer(graph, config, None, Progress("none"))
    trainer.sampler.prepare(trainer.model, trainer.generator)
    order = trainer.sampler.begin_epoch(0, trainer.generator)
    trainer.executor.begin_epoch(order, 0)
    steps = math.ceil(len(order) / trainer.batch_size)
    warm_up, timed = STEPS.get(config.sampler, USUAL_STEPS)
    for _ in range(warm_up):
        trainer.executor.step()
    trainer.executor.loss()  # waits for the device
    timed = max(1, min(timed, steps - warm_up))
    began = time.perf_counter()
    for _ in range(timed):
        trainer.executor.step()
    trainer.executor.loss()
    return (time.perf_counter() - began) / timed * steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="WN18RR")
    parser.add_argument("--scoring", action="append")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    graph = ns.load_graph(given.data)
    seconds: dict[str, dict[str, float]] = {}
    for scoring in given.scoring or ["simple"]:
        seconds[scoring] = {}
        for sampler in SAMPLERS:
            config = TrainConfig(
                data=given.data,
                scoring=scoring,
                sampler=sampler,
                dim=given.dim,
                l2=0.0,
                batch_size=given.batch_size,
                device=given.device,
            )
            seconds[scoring][sampler] = round(epoch_seconds(graph, config), 4)
            print(scoring, sampler, seconds[scoring][sampler], file=sys.stderr)
    machine = describe_machine(given.device)
    print(
        json.dumps(
            {"arguments": vars(given), "machine": machine, "seconds_per_epoch": seconds}, indent=1
        )
    )


if __name__ == "__main__":
    main()
