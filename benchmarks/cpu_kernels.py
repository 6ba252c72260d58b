"""Parts of a step on the CPU alone: Adam with deferred updates, and what a cache row is offered.

    python benchmarks/cpu_kernels.py --out benchmarks/results/cpu-kernels-2-cores.json

Tables have the size of WN18RR's with SimplE, d 100; each step has gradients for some 2,960 rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from types import SimpleNamespace

import nscaching  # noqa: F401, before torch: it sets up threads

# isort: split
import numpy as np
import torch

from nscaching.kernels import cache_cpu
from nscaching.models import Int8Table
from nscaching.optim import Adam, RowGradients
from nscaching.sampling.cache import Cache
from nscaching.sampling.known import KnownPositives
from nscaching.training.benchmarking import describe_machine

ENTITIES, WIDTH, TOUCHED = 40_943, 200, 3 * 1024
STEPS, WARM_UP = 300, 110


def adam_milliseconds(steps):
    """Return the smallest and the median time of a step, catching up included."""
    table = torch.randn(ENTITIES, WIDTH, generator=torch.Generator().manual_seed(0)) * 0.1
    adam = Adam({"x": table}, 1e-3, 0.0, copies={"x": Int8Table(table)})
    adam.defer("x", steps)
    taken = []
    for _ in range(STEPS):
        ids, rows = torch.randint(ENTITIES, (TOUCHED,)), torch.randn(TOUCHED, WIDTH) * 0.01
        started = time.perf_counter()
        adam.catch_up("x", ids)
        adam.step({"x": [RowGradients(ids, rows)]})
        taken.append(1e3 * (time.perf_counter() - started))
    return {"smallest": min(taken[WARM_UP:]), "median": statistics.median(taken[WARM_UP:])}


def offer_nanoseconds(answers, rows=4000):
    """Return the smallest time in which a row is offered 50 entities, given its known positives."""
    rng = np.random.default_rng(0)
    cache = Cache(rows, 50, ENTITIES, "quantile", torch.device("cpu"))
    cache.ids.copy_(torch.arange(50))
    held = np.sort(rng.integers(0, ENTITIES, (rows, answers)), axis=1).astype(np.int32).ravel()
    pairs = SimpleNamespace(offsets=np.arange(rows + 1) * answers, answers=held)
    known = KnownPositives(pairs, ENTITIES, torch.device("cpu"))
    taken = []
    for number in range(30):
        inputs = (torch.arange(rows), cache, 50, torch.tensor([number]), known)
        started = time.perf_counter()
        cache_cpu.offer(*inputs)
        taken.append(1e9 * (time.perf_counter() - started) / rows)
    return min(taken)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    result = {
        "machine": describe_machine(),
        "adam_ms_by_deferred_steps": {steps: adam_milliseconds(steps) for steps in (1, 4, 8, 16)},
        "offer_ns_by_answers": {count: offer_nanoseconds(count) for count in (0, 10, 100, 400)},
    }
    print(json.dumps(result, indent=1))
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
