"""What a training step takes on a GPU, kernel by kernel, and how many steps several runs make.

    python benchmarks/gpu_steps.py --out FILE                  # every case alone on the card
    python benchmarks/gpu_steps.py --processes 10 --out FILE   # that many at once: start MPS first

A line per case: microseconds of a step and of its kernels, seconds of the second validation; with
``--processes`` steps per millisecond of all processes together. ``--case`` picks cases by their
names; ``--kernels N`` prints the N kernels that take longest.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import nscaching as ns
from nscaching.runs.api import make_trainer
from nscaching.training import Progress, Trainer

#: ComplEx of 2,000 numbers per row on WN18RR, both sides, with the optimiser.
_WIDE: dict[str, Any] = {"dim": 1000, "batch_size": 200, "relation_prediction": 0.0, "n3": 0.1}
_ROTATE: dict[str, Any] = {
    "scoring": "rotate",
    "loss": "logistic",
    "sampler": "self-adversarial",
    "dim": 500,
    "batch_size": 512,
    "pool": 1024,
    "offset": 6.0,
    "schedule": "linear",
    "lr": 2e-4,
    "adversarial_temperature": 0.5,
}
#: Graph and options by the name of a case.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "all entities": ("WN18RR", {"recipe": "all-entities", **_WIDE}),
    "cached 50 + 1,000": ("WN18RR", {"recipe": "cached", "cache_size": 50, "pool": 1000, **_WIDE}),
    "uniform 1,050": ("WN18RR", {"recipe": "cached", "sampler": "uniform", "pool": 1050, **_WIDE}),
    "RotatE, Self-Adv, pool 1,024": ("WN18RR", _ROTATE),
}
for _data, _scoring, _dim, _batch in (
    ("WN18", "transe", 100, 1024),
    ("FB15K", "simple", 200, 2048),
    ("FB15K", "transd", 100, 1024),
):
    for _sampler in ("bernoulli", "nscaching", "kbgan", "igan"):
        _options = {"scoring": _scoring, "sampler": _sampler, "dim": _dim, "batch_size": _batch}
        CASES[f"{_data} {_scoring} {_sampler}"] = _data, _options


def warm(case: str) -> tuple[Trainer, int]:
    """Return a trainer whose steps are captured, and how many are left in its epoch."""
    data, options = CASES[case]
    trainer = make_trainer(
        ns.load_graph(data), out=None, progress=Progress("none"), seed=0, **options
    )
    trainer.sampler.prepare(trainer.model, trainer.generator)
    left = math.ceil(len(trainer.graph.train) / trainer.batch_size)
    steps(trainer, 0, 30)
    return trainer, left


def steps(trainer: Trainer, epoch: int, count: int) -> float:
    """Begin an epoch, take some of its steps, and return their seconds."""
    trainer.executor.begin_epoch(trainer.sampler.begin_epoch(epoch, trainer.generator), 0)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(count):
        trainer.executor.step()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def alone(case: str, shown: int) -> dict[str, Any]:
    """Time a case, the kernels of ten steps, and a validation."""
    trainer, left = warm(case)
    count = min(300, left - 10)
    seconds = steps(trainer, 1, count)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        steps(trainer, 2, 10)
    kernels = sorted(
        ((e.self_device_time_total / 10, e.count / 10, e.key) for e in seen.key_averages()),
        reverse=True,
    )
    for taken, times, name in kernels[:shown]:
        print(f"  {taken:8.1f} us {times:5.1f} x {name[:90]}")
    trainer.validation.measure(trainer.model)
    _, validation = trainer.validation.measure(trainer.model)
    return {
        "step_us": round(1e6 * seconds / count, 1),
        "kernels": round(sum(times for _, times, _ in kernels)),
        "kernels_us": round(sum(taken for taken, _, _ in kernels), 1),
        "validation_s": round(validation, 3),
    }


def _make_steps(case: str, seconds: float, ready: Any, made: Any) -> None:
    trainer, left = warm(case)
    ready.wait()
    started, count, epoch = time.perf_counter(), 0, 0
    while time.perf_counter() - started < seconds:
        epoch += 1
        steps(trainer, epoch, min(100, left))
        count += min(100, left)
    made.put(count / (time.perf_counter() - started) / 1000)


def together(case: str, processes: int, seconds: float) -> dict[str, Any]:
    """Return how many steps so many processes make in a millisecond."""
    spawn = multiprocessing.get_context("spawn")
    ready, made = spawn.Barrier(processes), spawn.Queue()
    workers = [
        spawn.Process(target=_make_steps, args=(case, seconds, ready, made))
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    rate = sum(made.get() for _ in workers)
    for worker in workers:
        worker.join()
    return {"processes": processes, "steps_per_ms": round(rate, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="with --processes")
    parser.add_argument("--kernels", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    for case in asked.case or CASES:
        if asked.processes > 1:
            found = together(case, asked.processes, asked.seconds)
        else:
            found = alone(case, asked.kernels)
        line = {"case": case, **found, "gpu": torch.cuda.get_device_name()}
        print(json.dumps(line), flush=True)
        with asked.out.open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
