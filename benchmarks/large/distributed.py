"""What strata and processes cost, and what strata do to quality.

    python benchmarks/large/distributed.py processes --data FB15K-237 --counts 1 2 4 --strata 4
    python benchmarks/large/distributed.py processes --data FB15K-237 --counts 2 --device cuda
    python benchmarks/large/distributed.py quality --strata 1 8 --workers 6 --out out.jsonl
    python benchmarks/large/distributed.py summary --out out.jsonl

``processes`` trains the same run with some numbers of processes of this machine and prints a line
per run: seconds of a step, of which spent on exchange; bytes that a process sent in a step, beside
the formula; MRR on valid after the epochs. On one GPU several processes talk by gloo through host
memory; ``--nccl`` starts one process with NCCL, whose calls are then inside the CUDA graph.

``quality`` trains over strata in one process. A line is appended to ``--out`` when a run ends, and
runs that it holds already are not repeated; ``--workers`` processes take runs from one queue, which
has the cells of a graph together. On a GPU they are at work at the same time only under CUDA's
Multi-Process Service. ``summary`` compares the numbers of strata.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import nscaching as ns  # before torch: it sets up threads

# isort: split
import numpy as np
import torch

from nscaching.distributed.step import ShardedStep
from nscaching.processes import joined
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
            "captured": bool(getattr(trainer.executor, "_graphs", {})),
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

#: Epochs with which MRR says something, about as many steps on each graph.
EPOCHS = {"WN18RR": 25, "FB15K-237": 8, "DEBIAN": 4}
QUALITY_KINDS = ["transe", "complex", "complex-softmax"]


def quality(arguments: argparse.Namespace) -> None:
    """Train the runs that are not there yet, in this process or in several."""
    if arguments.workers > 1:
        alone = [*sys.argv, "--workers", "1"]
        started = [subprocess.Popen([sys.executable, *alone]) for _ in range(arguments.workers)]
        if codes := [code for each in started if (code := each.wait())]:
            raise SystemExit(f"{len(codes)} workers ended with {codes}")
        return
    ends = time.time() + arguments.seconds
    cells = product(arguments.data or EPOCHS, arguments.kinds or QUALITY_KINDS)
    runs = product(cells, range(arguments.seeds), arguments.strata)
    graphs: dict[str, Any] = {}
    for (data, kind), seed, strata in runs:
        if time.time() > ends:
            return
        with _claimed(arguments.out, f"{data}-{kind}-{strata}-{seed}") as mine:
            if not mine or (data, kind, strata, seed) in _done(arguments.out):
                continue
            if data not in graphs:
                graphs = {data: ns.load_graph(_source(data))}
            _keep(arguments.out, _train(graphs[data], data, kind, strata, seed, arguments))


def _source(data: str) -> str:
    """Return the folder of a graph in NSCACHING_DATA that is no named data set, or its name."""
    folders = os.environ.get("NSCACHING_DATA", "").split(os.pathsep)
    found = [Path(folder, data) for folder in folders if folder and Path(folder, data).is_dir()]
    return str(found[0]) if found else data


@contextmanager
def _claimed(out: Path, name: str) -> Iterator[bool]:
    """Take a run for this process; a process that dies gives it back."""
    folder = out.with_suffix(".claims")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _done(out: Path) -> set[tuple[str, str, int, int]]:
    lines = out.read_text().splitlines() if out.exists() else []
    return {tuple(json.loads(e)[k] for k in ("data", "kind", "strata", "seed")) for e in lines}  # type: ignore[misc]


def _train(
    graph: Any, data: str, kind: str, strata: int, seed: int, arguments: argparse.Namespace
) -> str:
    epochs = arguments.epochs or EPOCHS[data]
    given = argparse.Namespace(**{**vars(arguments), "epochs": epochs})
    started, config = time.perf_counter(), settings(kind, given, strata, seed)
    trainer = Trainer(graph, config, None, Progress("none"))
    try:
        trainer.run(resume=False)
    except RuntimeError as error:
        if arguments.eager or strata == 1:
            raise
        print(f"{kind} with {strata} strata: {error}; again without a CUDA graph", flush=True)
        os.execv(sys.executable, [sys.executable, *sys.argv, "--eager"])
    line = {
        "data": data,
        "kind": kind,
        "strata": strata,
        "seed": seed,
        "eager": arguments.eager,
        "epochs": epochs,
        "dim": arguments.dim,
        "batch": trainer.batch_size,
        "device": str(trainer.device),
        "valid_mrr": trainer.counters.best_valid["mrr"],  # type: ignore[index]
        "test_mrr": trainer.validation.rank(trainer.model, "test").overall()["mrr"],
        "seconds": time.perf_counter() - started,
        "seconds_per_epoch": trainer.counters.epoch_seconds / epochs,
    }
    return json.dumps(line)


def summary(arguments: argparse.Namespace) -> None:
    """Print mean test MRR for each number of strata, and differences in standard errors."""
    cells: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in map(json.loads, arguments.out.read_text().splitlines()):
        cells[line["data"], line["kind"]][line["strata"]].append(line["test_mrr"])
    for (data, kind), found in cells.items():
        one = found[1]
        for strata, many in found.items():
            if strata == 1 or min(len(one), len(many)) < 2:
                continue
            errors = [np.std(each, ddof=1) / len(each) ** 0.5 for each in (one, many)]
            difference, error = np.mean(many) - np.mean(one), float(np.hypot(*errors))
            told = {"data": data, "kind": kind, "strata": strata, "seeds": [len(one), len(many)]}
            told |= {"mrr_1": float(np.mean(one)), "mrr": float(np.mean(many))}
            told |= {"difference": difference, "standard_error": error}
            print(json.dumps({**told, "within_two": bool(abs(difference) < 2 * error)}))


def _keep(out: Path | None, line: str) -> None:
    print(line, flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("processes", "quality", "summary", "worker"))
    parser.add_argument("--data", nargs="+")
    parser.add_argument("--kinds", nargs="+", choices=KINDS)
    parser.add_argument("--strata", type=int, nargs="+", default=[8])
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, help="default: 2; for quality, by graph")
    parser.add_argument("--most-steps", type=int, help="steps of each epoch; default all")
    parser.add_argument("--warm-up", type=int, default=20, help="steps that are not timed")
    parser.add_argument("--cores", type=int, help="cores that the processes share; default all")
    parser.add_argument("--nccl", action="store_true", help="one process of an NCCL group")
    parser.add_argument("--eager", action="store_true", help="strata without a CUDA graph")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1, help="processes that take runs")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no run starts later")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.eager:
        ShardedStep.may_be_captured = False  # type: ignore[assignment, method-assign]
    if arguments.what in ("processes", "worker"):
        arguments.data, arguments.epochs = arguments.data or ["FB15K-237"], arguments.epochs or 2
        arguments.kinds = arguments.kinds or ["transe", "complex-softmax"]
    elif arguments.out is None:
        parser.error(f"{arguments.what} needs --out")
    verbs = {"processes": processes, "quality": quality, "summary": summary, "worker": work}
    verbs[arguments.what](arguments)


if __name__ == "__main__":
    main()
