"""What strata and processes cost, and what strata do to quality.

    python benchmarks/large/distributed.py processes --data FB15K-237 --counts 1 2 4 --strata 4
    python benchmarks/large/distributed.py processes --data FB15K-237 --counts 2 --device cuda
    python benchmarks/large/distributed.py quality --data WN18RR FB15K-237 --strata 1 8 --seeds 5

``processes`` trains the same run with some numbers of processes of this machine and prints a line
per run: seconds of a step, of which spent on exchange; bytes that a process sent in a step, beside
the formula; MRR on valid after the epochs. On one GPU several processes talk by gloo through host
memory; ``--nccl`` starts one process with NCCL, whose calls are then inside the CUDA graph.

``quality`` trains over strata in one process. Lines are appended to ``--out``, and runs that it
holds already are not repeated; ``--part 1/4`` takes every fourth run, for several at once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import nscaching as ns  # before torch: it sets up threads

# isort: split
import torch

from nscaching.distributed.launch import joined
from nscaching.distributed.step import ShardedStep
from nscaching.training import Progress, TrainConfig, Trainer
from nscaching.training.memory import peak_bytes

SOFTMAX: dict[str, Any] = {"loss": "softmax", "cache_size": 48, "pool": 1000, "lr": 0.1}
SOFTMAX |= {"optimizer": "adagrad", "rescale": "none", "known_positives": "allow"}
#: The paper's settings with two scoring functions; softmax over cached entities and a pool, or all.
KINDS: dict[str, dict[str, Any]] = {
    "transe": {"scoring": "transe"},
    "complex": {"scoring": "complex"},
    "transe-softmax": {"scoring": "transe", **SOFTMAX, "lr": 0.03},
    "complex-softmax": {"scoring": "complex", **SOFTMAX, "reciprocal": True, "n3": 0.03},
    "complex-all": {"scoring": "complex", **SOFTMAX, "sampler": "all", "pool": 0, "n3": 0.03},
}


def settings(kind: str, arguments: argparse.Namespace, strata: int, seed: int = 0) -> TrainConfig:
    sizes = {"cache_size": 48, "candidates": 48, "dim": arguments.dim, "epochs": arguments.epochs}
    limits = {"valid_every": arguments.epochs, "batch_size": arguments.batch_size}
    given = {**sizes, **limits, "device": arguments.device, "strata": strata, "seed": seed}
    return TrainConfig(**{**given, **KINDS[kind]})


# Processes ----------------------------------------------------------------------------------------


def work(arguments: argparse.Namespace) -> None:
    """Train as one process of a group; rank 0 prints what it found."""
    if arguments.nccl:
        torch.distributed.init_process_group(
            "nccl", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
    with joined(arguments.device) as group:
        graph = ns.load_graph(arguments.data[0])
        config = settings(arguments.kinds[0], arguments, arguments.strata[0])
        trainer = Trainer(graph, config, None, Progress("none"))
        trainer.sampler.prepare(trainer.model, trainer.generator)
        steps = math.ceil(len(graph.train) / trainer.batch_size)
        exchange = getattr(getattr(trainer.placement, "shards", None), "exchange", None)
        taken, seconds, talking, sent = 0, 0.0, 0.0, 0
        for epoch in range(arguments.epochs):
            order = trainer.sampler.begin_epoch(epoch, trainer.generator)
            trainer.executor.begin_epoch(order, 0)
            for _ in range(min(steps, arguments.most_steps or steps)):
                if taken == arguments.warm_up:  # kernels are compiled, the graph is captured
                    trainer.executor.loss()
                    trainer.placement.total(0.0)
                    seconds -= time.perf_counter()
                    talking -= 0.0 if exchange is None else exchange.seconds
                    sent -= 0 if exchange is None else exchange.bytes_sent
                trainer.executor.step()
                taken += 1
        trainer.executor.loss()  # waits for the device
        seconds += time.perf_counter()
        measured = taken - arguments.warm_up
        if exchange is not None:
            talking, sent = talking + exchange.seconds, sent + exchange.bytes_sent
        peak = group.gather(peak_bytes())
        sent_by = group.gather(sent / measured)
        talked = group.gather(talking / measured)
        trainer.optimizer.catch_up_all()
        mrr = trainer.validation.measure(trainer.model)[0]["mrr"]
        relations = torch.stack(
            [batch.unique().numel() * torch.ones(()) for batch in _batches(trainer, order, 50)]
        ).mean()
        line = {
            "data": graph.name,
            "kind": arguments.kinds[0],
            "processes": group.size,
            "strata": config.strata,
            "device": str(trainer.device),
            "nccl": arguments.nccl,
            "eager": arguments.eager,
            "batch": trainer.batch_size,
            "ms_per_step": 1e3 * seconds / measured,
            "triples_per_second": measured * trainer.batch_size / seconds,
            "ms_exchange_per_step": [round(1e3 * each, 3) for each in talked],
            "bytes_per_step": sum(sent_by) / group.size,
            "formula_bytes": formula(trainer, group.size, float(relations)),
            "peak_megabytes": [each >> 20 for each in peak],
            "valid_mrr": mrr,
        }
        if group.rank == 0:
            print(json.dumps(line), flush=True)


def _batches(trainer: Trainer, order: Any, count: int) -> list[Any]:
    return list(trainer.columns[1][order].split(trainer.batch_size)[:count])


def formula(trainer: Trainer, processes: int, relations: float) -> float:
    """Return the bytes that a process sends in a step: neither N1 nor N2 is in it."""
    batch, others = trainer.batch_size, processes - 1
    width, of_relation = trainer.model.entity.shape[1], trainer.model.relation.shape[1]
    relations *= 2 if trainer.model.reciprocal else 1
    rows = 2 * batch / processes * width * 4 * others
    gradients = 8 * batch / processes * width * others / processes
    of_relations = 8 * relations * of_relation * others / processes
    if not trainer.config.asks_both_sides():
        return rows + gradients + of_relations
    summaries = 2 * batch * 4 * trainer.config.strata / processes * others
    queries = 2 * batch * width * 4 * others / processes
    return rows + gradients + of_relations + summaries + queries


def processes(arguments: argparse.Namespace) -> None:
    cores = len(os.sched_getaffinity(0))
    for kind, strata, count in product(arguments.kinds, arguments.strata, arguments.counts):
        if strata % count:
            continue
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        threads = str(max(1, (arguments.cores or cores) // count))
        given = ["worker", "--data", arguments.data[0], "--kinds", kind, "--strata", str(strata)]
        for name in ("dim", "epochs", "batch_size", "device", "most_steps", "warm_up"):
            if getattr(arguments, name) is not None:
                given += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
        given += [f"--{name}" for name in ("nccl", "eager") if getattr(arguments, name)]
        shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
        shared |= {"LOCAL_WORLD_SIZE": str(count)}
        shared |= {"OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads}
        started = [
            subprocess.Popen(
                [sys.executable, __file__, *given],
                env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
            for rank in range(count)
        ]
        told = started[0].communicate()[0]
        if any(process.wait() for process in started):
            print(json.dumps({"kind": kind, "strata": strata, "processes": count, "failed": True}))
            continue
        _keep(arguments.out, told.strip().splitlines()[-1])


# Quality ------------------------------------------------------------------------------------------


def quality(arguments: argparse.Namespace) -> None:
    done = set()
    if arguments.out is not None and arguments.out.exists():
        lines = (json.loads(line) for line in arguments.out.read_text().splitlines())
        done = {(e["data"], e["kind"], e["strata"], e["seed"]) for e in lines if "seed" in e}
    runs = list(product(range(arguments.seeds), arguments.data, arguments.kinds, arguments.strata))
    part, parts = map(int, arguments.part.split("/"))
    graphs = {data: ns.load_graph(data) for data in arguments.data}
    for seed, data, kind, strata in runs[part - 1 :: parts]:
        if (data, kind, strata, seed) in done:
            continue
        started, config = time.perf_counter(), settings(kind, arguments, strata, seed)
        trainer = Trainer(graphs[data], config, None, Progress("none"))
        try:
            trainer.run(resume=False)
        except RuntimeError as error:
            if arguments.eager or strata == 1 or arguments.out is None:
                raise
            print(f"{kind} with {strata} strata: {error}; again without a CUDA graph", flush=True)
            os.execv(sys.executable, [sys.executable, *sys.argv, "--eager"])
        line = {
            "data": data,
            "kind": kind,
            "strata": strata,
            "seed": seed,
            "eager": arguments.eager,
            "epochs": arguments.epochs,
            "dim": arguments.dim,
            "valid_mrr": trainer.counters.best_valid["mrr"],  # type: ignore[index]
            "test_mrr": trainer.validation.rank(trainer.model, "test").overall()["mrr"],
            "seconds": time.perf_counter() - started,
            "seconds_per_epoch": trainer.counters.epoch_seconds / arguments.epochs,
        }
        _keep(arguments.out, json.dumps(line))


def _keep(out: Path | None, line: str) -> None:
    print(line, flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("processes", "quality", "worker"))
    parser.add_argument("--data", nargs="+", default=["FB15K-237"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["transe", "complex-softmax"])
    parser.add_argument("--strata", type=int, nargs="+", default=[8])
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--most-steps", type=int, help="steps of each epoch; default all")
    parser.add_argument("--warm-up", type=int, default=20, help="steps that are not timed")
    parser.add_argument("--cores", type=int, help="cores that the processes share; default all")
    parser.add_argument("--nccl", action="store_true", help="one process of an NCCL group")
    parser.add_argument("--eager", action="store_true", help="strata without a CUDA graph")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.eager:
        ShardedStep.may_be_captured = False  # type: ignore[assignment, method-assign]
    {"processes": processes, "quality": quality, "worker": work}[arguments.what](arguments)


if __name__ == "__main__":
    main()
