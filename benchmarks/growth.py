"""How time and memory grow: synthetic graphs of 1, 4 and 16 times a size, each in its own process.

    python benchmarks/growth.py --out benchmarks/results/growth.json
    python benchmarks/growth.py --device cuda --base 500000 --out ...   # larger

A graph has 10 triples an entity and 20 relations; heads and tails follow a power law. One epoch of
NSCaching is timed, and the peak memory of the process, or of the GPU, is set beside what
``plan_memory`` said.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import nscaching as ns  # before torch: it sets up threads

# isort: split
import numpy as np
import torch

from nscaching.training import Progress, Trainer
from nscaching.training.benchmarking import describe_machine
from nscaching.training.memory import peak_bytes, plan_memory


def synthetic(entities: int, seed: int = 0) -> ns.KnowledgeGraph:
    rng = np.random.default_rng(seed)
    count = 10 * entities
    skewed = (entities * rng.random((2, count)) ** 2).astype(np.int32)
    triples = np.stack([skewed[0], rng.integers(0, 20, count, dtype=np.int32), skewed[1]], axis=1)
    names = [f"e{i}" for i in range(entities)]
    relations = [f"r{i}" for i in range(20)]
    return ns.KnowledgeGraph(names, relations, triples[2000:], triples[:1000], triples[1000:2000])


def measure(entities: int, device: str) -> dict[str, float]:
    started = time.perf_counter()
    graph = synthetic(entities)
    config = ns.TrainConfig(
        scoring="distmult",
        dim=32,
        l2=0.0,
        cache_size=10,
        candidates=10,
        batch_size=16384,
        optimizer="lazy-adam",
        epochs=1,
        device=device,
        data="synthetic",
    )
    config.check()
    plan = plan_memory(graph, config)
    planned = plan.total
    on_device = planned - plan.parts["program"] - plan.parts["graph"]  # if that is a GPU
    trainer = Trainer(graph, config, None, Progress("none"))
    ready = time.perf_counter()
    trainer.run(resume=False)
    trained = trainer.counters.epoch_seconds
    trainer.validation.rank(trainer.best_model(), "test")
    return {
        "entities": entities,
        "triples": len(graph.train),
        "prepare_seconds": ready - started,
        "epoch_seconds": trained,
        "microseconds_a_triple": 1e6 * trained / len(graph.train),
        "planned_bytes": on_device if device == "cuda" else planned,
        "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else peak_bytes(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=int, default=125_000, help="entities of the smallest graph")
    parser.add_argument("--entities", type=int, help="measure this size only, in this process")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.entities:
        print(json.dumps(measure(asked.entities, asked.device)))
        return
    measure(1000, asked.device)  # compiles the kernels, once for all
    rows = []
    for factor in (1, 4, 16):
        command = [sys.executable, __file__, "--entities", str(factor * asked.base)]
        command += ["--device", asked.device]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        row = json.loads(done.stdout.strip().split("\n")[-1])
        rows.append(row)
        each = row["microseconds_a_triple"]
        print(
            f"{row['entities']:>9,} entities {row['triples']:>10,} triples  "
            f"epoch {row['epoch_seconds']:7.1f} s  {each:5.2f} us a triple  "
            f"planned {row['planned_bytes'] / 1e9:5.2f} GB  peak {row['peak_bytes'] / 1e9:5.2f} GB",
            flush=True,
        )
    if asked.out:
        result = {"machine": describe_machine(asked.device), "rows": rows}
        asked.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
