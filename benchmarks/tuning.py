"""SMAC, random search and multi-fidelity on one graph; the best setting beside the default numbers.

    python benchmarks/tuning.py search smac --work W      # likewise random, smac-mf; resumes itself
    python benchmarks/tuning.py train --work W            # best setting and defaults, tested once
    python benchmarks/tuning.py report --work W --out benchmarks/results/tuning.json
    python benchmarks/tuning.py workers --work W          # one and two Dask workers, or GPU threads

Every part can be stopped and started again: a search resumes, and what is trained is not trained
again. ``--seconds`` bounds a search.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import nscaching as ns
from nscaching.experiments.tune.trials import CurvePoint
from nscaching.report.pictures import curves_chart, write_svg
from nscaching.training.benchmarking import describe_machine

METHODS = ("smac", "random", "smac-mf")
#: SimplE's settings under Bernoulli, which the search keeps.
BASE = {"scoring": "simple", "dim": 100, "l2": 0.1, "lr": 1e-3, "batch_size": 1024}
#: Paper, tb-perf, WN18RR SimplE: test MRR and Hits@10.
PAPER = {"NSCaching (auto)": [0.4388, 0.4836], "NSCaching": [0.4361, 0.4767]}


def search(asked: argparse.Namespace, method: str) -> None:
    out = asked.work / method
    kept = {"workers": asked.workers, "workers_as": asked.workers_as, "progress": "lines"}
    kept["seconds"] = asked.seconds
    started = time.time()
    if (out / "search.yaml").exists():
        result = ns.tune(out=out, resume=True, **kept)
    else:
        settings = {"trials": asked.trials, "method": method, "space": asked.space}
        settings["min_epochs"] = asked.min_epochs
        result = ns.tune(asked.data, out=out, **settings, **kept, **_training(asked))
    with (asked.work / "sessions.jsonl").open("a") as file:
        file.write(json.dumps({"method": method, "seconds": time.time() - started}) + "\n")
    print(f"{method}: best valid MRR {result.best.score:.4f}, {result.epochs} epochs", flush=True)


def train(asked: argparse.Namespace) -> None:
    """Train the best setting of each search and the default numbers, at equal epochs and seeds."""
    settings: dict[str, dict[str, Any]] = {"default numbers": {"sampler": "nscaching"}}
    settings["bernoulli"] = {"sampler": "bernoulli"}
    for method in METHODS:
        if (asked.work / method / "result.json").exists():
            found = json.loads((asked.work / method / "result.json").read_text())
            settings[f"best of {method}"] = found["best"]["config"]
    file = asked.work / "tests.json"
    done = json.loads(file.read_text()) if file.exists() else []
    for seed in range(asked.seeds):
        for name, options in settings.items():
            if any((row["name"], row["seed"]) == (name, seed) for row in done):
                continue
            told = {**_training(asked), **options, "seed": seed, "epochs": asked.final_epochs}
            run = ns.train(asked.data, progress="none", **told)
            row = {"name": name, "seed": seed, "options": options, **run.summary}
            done.append(row)
            file.write_text(json.dumps(done, indent=1))
            test = row["test"]
            print(
                f"{name:18s} seed {seed}: valid {row['valid']['mrr']:.4f}  "
                f"test {test['mrr']:.4f} / {test['hits@10']:.4f}  "
                f"best epoch {row['best_epoch']}  {row['seconds']:.1f} s",
                flush=True,
            )


def report(asked: argparse.Namespace) -> None:
    searches, curves = {}, {}
    for method in METHODS:
        file = asked.work / method / "result.json"
        if not file.exists():
            continue
        found = json.loads(file.read_text())
        curves[method] = [CurvePoint(**point) for point in found["curve"]]
        keys = ("best", "curve", "importance", "epochs", "training_seconds", "failed")
        searches[method] = {key: found[key] for key in keys}
        for place in ("file", "run"):  # folders of the machine that searched
            searches[method]["best"].pop(place, None)
        searches[method]["trials"] = [
            {key: trial[key] for key in ("number", "config", "mrr", "epochs", "seconds", "status")}
            for trial in found["trials"]
        ]
        searches[method]["seconds"] = _session_seconds(asked.work, method)
    default = _mean_valid(asked.work, "default numbers")
    reference = ("NSCaching, default numbers", default) if default else None
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for over in ("trials", "epochs"):
        picture = asked.out.with_name(f"{asked.out.stem}-{over}.svg")
        write_svg(picture, [curves_chart(curves, over=over, reference=reference)])
    tests = asked.work / "tests.json"
    result = {
        "machine": describe_machine("cuda" if torch.cuda.is_available() else "cpu"),
        "data": asked.data,
        "base": _training(asked),
        "searches": searches,
        "multi_fidelity": _reached(curves),
        "tests": json.loads(tests.read_text()) if tests.exists() else [],
        "paper_wn18rr_simple": PAPER,
    }
    asked.out.write_text(json.dumps(result, indent=1) + "\n")
    for method, row in searches.items():
        print(
            f"{method:8s} best valid MRR {row['best']['mrr']:.4f}  {len(row['trials'])} trials  "
            f"{row['epochs']} epochs  {row['training_seconds']:.0f} s of training  "
            f"{row['seconds']:.0f} s in all"
        )
    print("multi-fidelity:", result["multi_fidelity"])


def workers(asked: argparse.Namespace) -> None:
    """Time the same random search with one worker and with several."""
    told = {"method": "random", "trials": asked.trials, "progress": "lines", "overwrite": True}
    rows = []
    gpu = torch.cuda.is_available()
    ways = ["in this process", "threads", "processes"] if gpu else ["in this process", "1", "2"]
    for way in ways:
        out = asked.work / f"workers-{way.replace(' ', '-')}"
        started = time.time()
        if way == "in this process":
            result = ns.tune(asked.data, out=out, **told, **_training(asked))
        elif gpu:
            many = {"workers": asked.workers, "workers_as": way}
            result = ns.tune(asked.data, out=out, **many, **told, **_training(asked))
        else:
            started, result = _on_dask_workers(int(way), asked, out, told)
        seconds = time.time() - started
        rows.append({"way": way, "seconds": seconds, "epochs": result.epochs})
        print(f"{way}: {seconds:.1f} s", flush=True)
    rows[-1]["share_of_one"] = rows[-1]["seconds"] / rows[-2]["seconds"]
    result_file = asked.work / "workers.json"
    machine = describe_machine("cuda" if gpu else "cpu")
    result_file.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    print(rows)


def _on_dask_workers(
    count: int, asked: argparse.Namespace, out: Path, told: dict[str, Any]
) -> tuple[float, ns.SearchResult]:
    """Search on a local Dask cluster of workers with one thread each; its start is not timed."""
    from dask.distributed import Client, LocalCluster

    with LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            client.run(_warm_up)  # imports torch, loads the kernels
        started = time.time()
        address = cluster.scheduler_address
        return started, ns.tune(asked.data, out=out, dask=address, **told, **_training(asked))


def _warm_up() -> None:
    ns.train("world", epochs=1, dim=8, progress="none", device="cpu")


def _training(asked: argparse.Namespace) -> dict[str, Any]:
    told = {**BASE, "dim": asked.dim, "epochs": asked.epochs, "seed": asked.seed}
    return {**told, "valid_every": asked.valid_every, "patience": 0}


def _session_seconds(work: Path, method: str) -> float:
    lines = (work / "sessions.jsonl").read_text().splitlines()
    return sum(row["seconds"] for row in map(json.loads, lines) if row["method"] == method)


def _mean_valid(work: Path, name: str) -> float | None:
    file = work / "tests.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    values = [row["valid"]["mrr"] for row in rows if row["name"] == name]
    return sum(values) / len(values) if values else None


def _reached(curves: dict[str, list[CurvePoint]]) -> dict[str, Any] | None:
    """Return how many epochs multi-fidelity needed for the plain search's best MRR."""
    if "smac" not in curves or "smac-mf" not in curves:
        return None
    plain, fast = curves["smac"], curves["smac-mf"]
    goal = plain[-1].top1
    when = next((point.epochs for point in fast if point.top1 >= goal), None)
    first = next(point.epochs for point in plain if point.top1 >= goal)
    return {
        "plain_best": goal,
        "plain_epochs": plain[-1].epochs,
        "plain_epochs_until_best": first,
        "best": fast[-1].top1,
        "epochs": fast[-1].epochs,
        "epochs_until_plain_best": when,
        "share": when / plain[-1].epochs if when is not None else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=("search", "train", "report", "workers"))
    parser.add_argument("methods", nargs="*", help=f"for search: {', '.join(METHODS)}")
    parser.add_argument("--work", type=Path, default=Path("runs/tuning"), help="folder to work in")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/tuning.json"))
    parser.add_argument("--data", default="WN18RR")
    parser.add_argument("--space", default="sampler")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--min-epochs", type=int, default=0, help="for smac-mf")
    parser.add_argument("--final-epochs", type=int, help="for train; as in the search if not given")
    parser.add_argument("--valid-every", type=int, default=5)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3, help="for train")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--workers-as", default="auto")
    parser.add_argument("--seconds", type=float, help="stop a search after so long")
    asked = parser.parse_args()
    asked.final_epochs = asked.final_epochs or asked.epochs
    asked.work.mkdir(parents=True, exist_ok=True)
    if asked.part == "search":
        for method in asked.methods or METHODS:
            search(asked, method)
    else:
        {"train": train, "report": report, "workers": workers}[asked.part](asked)


if __name__ == "__main__":
    main()
