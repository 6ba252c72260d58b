"""Two versions of the package, alternating: milliseconds per step and seconds of an evaluation.

    python benchmarks/by_turns.py --versions OLD/src NEW/src --rounds 3 --device cpu --out FILE

Each timing is a process of its own, so that versions share nothing but the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

#: Name, data set, options.
RUNS = {
    "WN18RR SimplE d100 b1024": ("WN18RR", {"scoring": "simple", "dim": 100, "batch_size": 1024}),
    "WN18RR TransD d100 b1024": ("WN18RR", {"scoring": "transd", "dim": 100, "batch_size": 1024}),
    "FB15K-237 ComplEx d200 b4096": (
        "FB15K-237",
        {"scoring": "complex", "dim": 200, "batch_size": 4096},
    ),
}
_PROGRAM = """
import json, sys
from nscaching.graph import load_graph
try:
    from nscaching.training.benchmarking import time_run
except ImportError:
    from nscaching.benchmarking import time_run
from nscaching.training import TrainConfig
data, options, device, epochs = json.loads(sys.argv[1])
config = TrainConfig(data=data, device=device, sampler="nscaching", l2=0.0, **options)
print(json.dumps(time_run(load_graph(data), config, epochs=epochs).as_dict()))
"""


def timed(source: str, data: str, options: dict, device: str, epochs: int) -> dict[str, float]:
    """Time one run of one version."""
    asked = json.dumps([data, options, device, epochs])
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, asked],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", nargs="+", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(given.rounds):
        for name, (data, options) in RUNS.items():
            if given.only not in name:
                continue
            for version in given.versions[:: 1 if number % 2 == 0 else -1]:
                timing = timed(version, data, options, given.device, given.epochs)
                ms = 1000 * timing["step_seconds"]
                found.setdefault(name, {}).setdefault(version, []).append(ms)
                print(f"{name}  {version}: {ms:.3f} ms", flush=True)
    summary = {
        name: {version: statistics.median(times) for version, times in versions.items()}
        for name, versions in found.items()
    }
    for name, versions in summary.items():
        first = next(iter(versions.values()))
        print(name, {version: f"{ms:.3f} ({ms / first:.3f})" for version, ms in versions.items()})
    if given.out:
        text = json.dumps({"ms_per_step": found, "median": summary}, indent=1)
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
