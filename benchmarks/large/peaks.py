"""Peak memory of each process of a whole run against its plan: training, checkpoints, evaluation.

    python benchmarks/large/peaks.py --entities 250000 --processes 1 2 4 --out out.jsonl

``nscaching train`` is started on a generated graph (``generate.py``), and the peak that the kernel
keeps of each of its processes is read until the end. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nscaching.distributed.cost import plan_process
from nscaching.training import RunFolder

METHODS = {
    "transe": "--scoring transe",
    "complex": "--scoring complex",
    "softmax": "--scoring complex --loss softmax --cache-size 48 --pool 1000",
}


def peaks(command: list[str], processes: int, ended: Path) -> tuple[list[int], list[int]]:
    """Run a command; return the most bytes that each of its processes held, by rank.

    First until training had ``ended``, that is until this file was there, then in all.
    """
    found: dict[int, int] = {}
    training: dict[int, int] = {}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as started:
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
        while started.poll() is None:
            for pid in [started.pid] if processes == 1 else _words(children):
                status = _lines(Path(f"/proc/{pid}/status"))
                held = [line.split()[1] for line in status if line.startswith("VmHWM")]
                rank = _rank(Path(f"/proc/{pid}/environ")) if processes > 1 else 0
                if rank is not None and held:
                    found[rank] = int(held[0]) * 1024
                    if not ended.exists():
                        training[rank] = found[rank]
            time.sleep(0.05)
    if started.returncode:
        raise SystemExit(f"{command} ended with {started.returncode}")
    return [training[rank] for rank in range(processes)], [found[rank] for rank in range(processes)]


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:  # it has just ended
        return []


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


def _rank(file: Path) -> int | None:
    told = [line for line in " ".join(_lines(file)).split("\0") if line.startswith("RANK=")]
    return int(told[0].partition("=")[2]) if told else None


def measure(given: argparse.Namespace, graph: Path, method: str, processes: int) -> dict[str, Any]:
    """Train once; return peaks and plan."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        command = [sys.executable, "-m", "nscaching", "train", str(graph), "--out", str(out)]
        command += ["--recipe", "paper", *METHODS[method].split(), "--device", "cpu", "--no-report"]
        command += ["--dim", str(given.dim), "--strata", "8", "--epochs", str(given.epochs)]
        command += ["--batch-size", str(given.batch_size), "--checkpoint-seconds", "0"]
        command += ["--split", str(given.split), "--eval-memory", str(given.eval_memory)]
        command += ["--optimizer", "lazy-adam", *given.options, "--quiet"]
        started = time.perf_counter()
        ended = out / "model.safetensors.index.json"
        training, found = peaks([*command, "--processes", str(processes)], processes, ended)
        seconds, run = time.perf_counter() - started, RunFolder(out)
        plan = plan_process(run.read_graph(), run.read_config(), processes)
        return {
            "entities": given.entities,
            "facts": given.facts,
            "method": method,
            "width": run.read_config().build_scoring().entity_width,
            "processes": processes,
            "seconds": seconds,
            "training_bytes": training,
            "peak_bytes": found,
            "plan_bytes": plan.total,
            "share_of_plan": max(found) / plan.total,
            "plan": plan.parts,
        }


def main() -> None:
    """Measure each method on each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=250_000)
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--methods", nargs="+", default=["transe"], choices=list(METHODS))
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--split", type=float, default=0.002)
    parser.add_argument("--eval-memory", type=int, default=256)
    parser.add_argument("--options", nargs="*", default=[], help="more words for train")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder, "graph.tsv")
        sizes = ["--facts", str(given.facts), "--entities", str(given.entities)]
        generate = Path(__file__).with_name("generate.py")
        subprocess.run([sys.executable, generate, graph, *sizes], check=True, stdout=sys.stderr)
        for method in given.methods:
            for processes in given.processes:
                line = json.dumps(measure(given, graph, method, processes))
                print(line, flush=True)
                if given.out is not None:
                    with given.out.open("a") as file:
                        file.write(line + "\n")


if __name__ == "__main__":
    main()
