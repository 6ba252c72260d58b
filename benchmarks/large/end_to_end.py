"""A generated graph end to end: generate, ingest, plan, train, evaluate, predict.

    python benchmarks/large/end_to_end.py --entities 100000 --facts 1000000 --work W --out W/lines

The options of the graph are those of ``generate.py``; ``--sharing`` instead of ``--relations``
makes graphs of several sizes equally hard, save that the true entity has more others beside it.

Each stage is a process of its own and appends a line of JSON: its seconds, processor seconds and
peak memory, on a GPU also the most that was allocated there beside the plan of ``--dry-run``, and
the tail MRR beside the best that is possible on this graph. ``--stages`` runs some of them, on what
earlier ones left in ``--work``, so that the first two, which need no GPU, can go before.
``--options`` is a JSON object of options of ``nscaching train``; with ``valid_every`` the line of
training has the MRR on valid, of both sides, by epoch. A stage that fails, or takes more than
``--limit`` seconds, leaves a line with what it had told so far; the stages after it are tried all
the same.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from generate import add_options, best_filtered, generated, write_parts
from ingest import watched

STAGES = ("generate", "ingest", "plan", "train", "evaluate", "predict")
#: ComplEx with a softmax over cached and uniform entities, in half of the memory.
OPTIONS = {
    "recipe": "cached",
    "table": "bfloat16",
    "dim": 64,
    "batch_size": 8192,
    "cache_size": 20,
    "pool": 2000,
    "n3": 0.05,
    "epochs": 1,
    "valid_every": 0,
    "checkpoint_seconds": 1e6,
    "eval_memory": 8192,
}
#: What of a plan is in the memory of the host, whatever the device.
ON_HOST = ("program", "graph")
QUESTIONS = 50


def generate(given: argparse.Namespace) -> dict[str, Any]:
    made = generated(given)
    write_parts(made, given.work / "facts", given.threads)
    written = sum(file.stat().st_size for file in (given.work / "facts").iterdir())
    return {"bytes": written, "best_mrr": made.best_mrr}


def ingest(given: argparse.Namespace) -> dict[str, Any]:
    import nscaching as ns

    share = min(0.01, given.held_out / given.facts)
    limits = {"split": share, "memory": given.memory, "threads": given.threads}
    graph = ns.ingest(given.work / "facts", given.work / "store", overwrite=True, **limits)
    sizes = {split: len(graph.split(split)) for split in ("train", "valid", "test")}
    files = sum(file.stat().st_size for file in (given.work / "store").iterdir())
    return {**sizes, "entities_found": graph.num_entities, "store_bytes": files}


def plan(given: argparse.Namespace) -> dict[str, Any]:
    import nscaching as ns
    from nscaching.runs.api import recipe_config
    from nscaching.training import Progress
    from nscaching.training.memory import plan_memory

    store = given.work / "store"
    graph = ns.load_graph(store)
    planned = plan_memory(graph, recipe_config(given.options, store, graph, Progress("none")))
    device = planned.total - sum(planned.parts[name] for name in ON_HOST)
    sizes = {"host": planned.host / 1e9, "device": device / 1e9}
    return {"planned_gb": sizes, "parts_gb": {k: v / 1e9 for k, v in planned.parts.items()}}


def train(given: argparse.Namespace) -> dict[str, Any]:
    from nscaching.runs.api import make_trainer
    from nscaching.training import Progress

    begin = time.perf_counter()
    quiet = {"progress": Progress("none"), "overwrite": True, "out": given.work / "run"}
    trainer = make_trainer(given.work / "store", **quiet, **given.options)
    made = time.perf_counter()
    trained: list[float] = []

    def after_epoch(epoch: int) -> None:
        trained.append(time.perf_counter())
        _tell(given, figures())

    def figures() -> dict[str, Any]:
        counters, steps = trainer.counters, -(-len(trainer.graph.train) // trainer.batch_size)
        seconds = counters.epoch_seconds / counters.epoch
        return {
            "options": given.options,
            "open_and_make_seconds": made - begin,
            "caches_seconds": max(0.0, trained[0] - made - seconds),
            "epochs": counters.epoch,
            "epoch_seconds": seconds,
            "ms_per_step": 1000 * seconds / steps,
            **_on_device(given),
        }

    trainer.after_epoch = after_epoch
    trainer.run(resume=False)
    files = sum(file.stat().st_size for file in (given.work / "run").rglob("*") if file.is_file())
    after = time.perf_counter() - trained[-1]
    lines = map(json.loads, (given.work / "run" / "metrics.jsonl").read_text().splitlines())
    valid = {line["epoch"]: line["mrr"] for line in lines if line["event"] == "evaluation"}
    told = {"after_last_epoch_seconds": after, "run_bytes": files, "valid_mrr": valid}
    return {**figures(), **told}


def evaluate(given: argparse.Namespace) -> dict[str, Any]:
    import nscaching as ns

    begin = time.perf_counter()
    run = ns.load_run(given.work / "run", device=given.device)
    loaded = time.perf_counter()
    report = run.evaluate("test", memory_mb=given.options["eval_memory"])
    end = time.perf_counter()
    sides = {"head": report.head.mrr, "tail": report.tail.mrr, "both": report.mrr}
    told = {"load_seconds": loaded - begin, "rank_seconds": end - loaded, "mrr": sides}
    told |= {"ranked": 2 * len(run.graph.test), **_on_device(given)}
    _tell(given, told)
    best = best_filtered(generated(given), given.work / "store")
    return {**told, "tail_mrr_of_best": sides["tail"] / best, "best_filtered_tail_mrr": best}


def predict(given: argparse.Namespace) -> dict[str, Any]:
    import nscaching as ns

    begin = time.perf_counter()
    run = ns.load_run(given.work / "run", device=given.device)
    graph, asked = run.graph, []
    told: dict[str, Any] = {"load_seconds": time.perf_counter() - begin}
    if not given.probabilities:
        run.calibration = None  # as of a run without valid facts: answers by score alone
    else:
        begin = time.perf_counter()
        _ = run.calibration
        told["fit_seconds"] = time.perf_counter() - begin
        _tell(given, told)
    for head, relation, _ in graph.test[:QUESTIONS]:
        begin = time.perf_counter()
        run.predict_tails(graph.entities[head], graph.relations[relation], k=10)
        asked.append(time.perf_counter() - begin)
        rest = sorted(asked[1:] or asked)
        told |= {"first_answer_seconds": asked[0], "answers": len(asked), **_on_device(given)}
        _tell(given, told | {"median_answer_ms": 1000 * rest[len(rest) // 2]})
    return {**told, "median_answer_ms": 1000 * rest[len(rest) // 2]}


def _tell(given: argparse.Namespace, told: dict[str, Any]) -> None:
    """Keep what is known so far."""
    (given.work / "told.json").write_text(json.dumps(told))


def _on_device(given: argparse.Namespace) -> dict[str, Any]:
    """Return what the GPU held at most, where there is one."""
    import torch

    if not torch.cuda.is_available() or given.device == "cpu":
        return {"device": "cpu"}
    held = {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
    }
    return {"device": torch.cuda.get_device_name(), "gpu_gb": {k: v / 1e9 for k, v in held.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser, 1_000_000, 100_000)
    parser.add_argument("--held-out", type=int, default=5000, help="facts of valid, and of test")
    parser.add_argument("--work", type=Path, required=True, help="folder for all files, kept")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--options", type=json.loads, default={}, help="of train, as JSON")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--memory", default="4GB", help="of ingest")
    parser.add_argument("--threads", type=int, default=2, help="of generate and ingest")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds of a stage")
    parser.add_argument("--probabilities", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--child", choices=STAGES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    if given.child is not None:
        given.options = {**OPTIONS, "device": given.device, **given.options}
        stages: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
            "generate": generate, "ingest": ingest, "plan": plan,
            "train": train, "evaluate": evaluate, "predict": predict,
        }  # fmt: skip
        _tell(given, stages[given.child](given))
        return
    failed = False
    for stage in given.stages:
        (given.work / "told.json").unlink(missing_ok=True)
        code, seconds = watched([sys.executable, *sys.argv, "--child", stage], given.limit)
        file = given.work / "told.json"
        told = json.loads(file.read_text()) if file.exists() else {}
        line = {"stage": stage, **asdict(generated(given)), **seconds, **told}
        if code:
            line, failed = {**line, "failed": code}, True
        with given.out.open("a") as file:
            file.write(json.dumps(_rounded(line)) + "\n")
        print(json.dumps(_rounded(line)), flush=True)
    raise SystemExit(failed)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
