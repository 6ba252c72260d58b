"""Large entity tables on one GPU: what bfloat16 costs, and what the alternative would.

    python benchmarks/large/tables.py quality --device cuda --out FILE   test MRR beside float32
    python benchmarks/large/tables.py wide --entities 50000000 --out FILE   memory and seconds
    python benchmarks/large/tables.py gather --entities 20000000 --out FILE   rows in host memory

``quality`` trains the recipe for cached candidates with both types of numbers. ``wide`` trains for
some hundred steps on random facts over very many entities, beside the plan of ``--dry-run``.
``gather`` reads the rows of a step from a table on the GPU and from one in host memory that the GPU
reaches over the bus: rows there are read at the speed of the bus at best.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nscaching.graph import KnowledgeGraph
from nscaching.runs.api import make_trainer, recipe_config
from nscaching.training import Progress, Trainer
from nscaching.training.memory import plan_memory

RELATIONS, FACTS, STEPS = 1000, 4_000_000, 200


def quality(given: argparse.Namespace) -> None:
    """Train both kinds of tables on real graphs."""
    for name in given.graphs:
        for seed in range(1, given.seeds + 1):
            for table in ("float32", "bfloat16"):
                options = {"recipe": "cached", "dim": given.dim, "table": table, "seed": seed}
                options |= {"device": given.device, **given.options}
                trainer = make_trainer(name, out=None, progress=Progress("none"), **options)
                trainer.run(resume=False)
                report = trainer.validation.rank(trainer.best_model(), "test")
                steps = trainer.counters.epoch * -(-len(trainer.graph.train) // trainer.batch_size)
                line = {"graph": name, "table": table, "seed": seed, "options": given.options}
                line |= {"dim": given.dim, "epochs": trainer.counters.epoch}
                line |= {"ms_per_step": 1000 * trainer.counters.epoch_seconds / steps}
                _write(given.out, line | {"mrr": report.mrr, "hits@10": report.hits_at_10})


class Wide(KnowledgeGraph):
    """Random facts over more entities than there are names."""

    count = 0

    @property
    def num_entities(self) -> int:
        """How many rows the entity table has."""
        return self.count


def wide(given: argparse.Namespace) -> None:
    """Take steps over a very large table."""
    graph = Wide(["e"], [f"r{i}" for i in range(RELATIONS)], np.zeros((0, 3), np.int32))
    random, graph.count = np.random.default_rng(0), given.entities
    limits = (given.entities, RELATIONS, given.entities)
    columns = [random.integers(0, most, FACTS, dtype=np.int32) for most in limits]
    graph.train = np.stack(columns, axis=1)
    options = {"recipe": "cached", "dim": given.dim, "table": "bfloat16", "device": given.device}
    options |= {"epochs": 1, "valid_every": 0, "batch_size": 8192, "cache_size": 20, "pool": 2000}
    begin = time.perf_counter()
    options |= given.options
    config = recipe_config(options, graph, graph, Progress("none"))
    planned = plan_memory(graph, config)
    trainer = Trainer(graph, config, None, Progress("none"))
    trainer.sampler.prepare(trainer.model, trainer.generator)
    order = trainer.sampler.begin_epoch(0, trainer.generator)
    trainer.executor.begin_epoch(order, 0)
    for _ in range(10):
        trainer.executor.step()
    trainer.executor.loss()
    ready = time.perf_counter()
    for _ in range(STEPS):
        trainer.executor.step()
    loss = trainer.executor.loss()
    seconds = (time.perf_counter() - ready) / STEPS
    on_host = planned.parts["program"] + planned.parts["graph"]
    line = {"entities": given.entities, "dim": given.dim, "options": options, "loss": loss}
    line |= {"ready_seconds": ready - begin, "ms_per_step": 1000 * seconds}
    line |= {"planned_gpu_gb": (planned.total - on_host) / 1e9}
    line |= {"parts_gb": {k: round(v / 1e9, 3) for k, v in planned.parts.items()}, **_held(given)}
    _write(given.out, line)


def gather(given: argparse.Namespace) -> None:
    """Score candidates, as a step does, from tables here and there."""
    from nscaching.kernels.match_gpu import dot_forward
    from nscaching.models.match import Query

    width, questions, candidates = 2 * given.dim, 16384, 21
    query = Query(torch.randn(questions, width, device="cuda"))
    ids = torch.randint(given.entities, (questions, candidates), device="cuda")
    for place, dtype in (
        ("device", torch.bfloat16), ("device", torch.float32), ("host", torch.float32),
    ):  # fmt: skip
        where: dict[str, Any] = {"pin_memory": True} if place == "host" else {"device": "cuda"}
        stored = torch.zeros(given.entities, width, dtype=dtype, **where)
        for _ in range(5):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            dot_forward(query, stored, ids)  # the GPU reaches pinned memory over the bus
            torch.cuda.synchronize()
            seconds = time.perf_counter() - begin
        rate = ids.numel() * width * stored.element_size() / seconds / 1e9
        line = {"gather": place, "dtype": str(dtype), "entities": given.entities, "width": width}
        _write(given.out, line | {"ms": 1000 * seconds, "gb_per_second": rate})
        del stored


def _held(given: argparse.Namespace) -> dict[str, Any]:
    if given.device != "cuda":
        return {}
    return {"gpu_gb": torch.cuda.max_memory_allocated() / 1e9, "gpu": torch.cuda.get_device_name()}


def _write(out: Path, line: dict[str, Any]) -> None:
    with out.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("quality", "wide", "gather"))
    parser.add_argument("--graphs", nargs="+", default=["WN18RR", "FB15K-237"])
    parser.add_argument("--entities", type=int, default=50_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--options", type=json.loads, default={}, help="of train, as JSON")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    {"quality": quality, "wide": wide, "gather": gather}[given.what](given)


if __name__ == "__main__":
    main()
