"""Timing our own training step and evaluation on this machine.

``benchmarks/side_by_side.py`` times peers in the same process; ``nscaching benchmark`` shows ours.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from nscaching.evaluation import rank_triples
from nscaching.graph import KnowledgeGraph
from nscaching.training import Progress, TrainConfig, Trainer


@dataclass(frozen=True)
class Timing:
    """What was measured, in seconds."""

    compile_seconds: float  #: until the first steps had been taken, kernels compiled or loaded
    step_seconds: float  #: median over epochs of the mean step
    epoch_seconds: float  #: a step times the steps of an epoch
    evaluation_seconds: float  #: filtered ranking of the split, both sides

    def as_dict(self) -> dict[str, float]:
        """Return the fields as plain values."""
        return dict(self.__dict__)


def time_run(
    graph: KnowledgeGraph,
    config: TrainConfig,
    *,
    epochs: int = 3,
    split: str = "test",
    most_steps: int | None = None,
) -> Timing:
    """Time warm epochs and one warm evaluation of the chosen sampler, not of what comes before.

    ``most_steps`` of each epoch are taken.
    """
    started = time.perf_counter()
    config = replace(config, pretrain_epochs=0, generator_epochs=0)
    trainer = Trainer(graph, config, None, Progress("none"))
    trainer.sampler.prepare(trainer.model, trainer.generator)
    steps = math.ceil(len(graph.train) / trainer.batch_size)
    trainer.executor.begin_epoch(trainer.sampler.begin_epoch(0, trainer.generator), 0)
    for _ in range(min(5, steps)):
        trainer.executor.step()
    trainer.executor.loss()
    compile_seconds = time.perf_counter() - started
    seconds = []
    taken = min(steps, most_steps or steps)
    for epoch in range(epochs):
        started = time.perf_counter()
        trainer.executor.begin_epoch(trainer.sampler.begin_epoch(epoch, trainer.generator), 0)
        for _ in range(taken):
            trainer.executor.step()
        trainer.executor.loss()  # waits for the device
        seconds.append(time.perf_counter() - started)
    triples = graph.split(split)
    options: Any = {"memory_mb": config.eval_memory, "count": trainer.placement.count()}
    rank_triples(trainer.model, graph, triples[:10], **options)
    started = time.perf_counter()
    rank_triples(trainer.model, graph, triples, **options)
    evaluation = time.perf_counter() - started
    step_seconds = statistics.median(seconds) / taken
    return Timing(compile_seconds, step_seconds, step_seconds * steps, evaluation)


def describe_machine(device: str = "cpu") -> dict[str, Any]:
    """Return what a reader must know of the machine to compare its numbers."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if device.startswith("cuda") else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:  # noqa: PTH123
            names = [
                line.split(":", 1)[1].strip() for line in file if line.startswith("model name")
            ]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
