"""Ask a run on a graph of two million entities: seconds and memory of each question.

    python benchmarks/reliability/large_predict.py --entities 2000000 --out large_predict.json

The run is written, not trained: random parameters answer as slowly as good ones. Every question is
a command of its own, which loads the run first. A run with valid facts fits its probabilities on
them when it is first asked (or at the end of a training, for the report) and keeps them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nscaching.graph import KnowledgeGraph
from nscaching.training import RunFolder, TrainConfig

WATCH = """
import resource, subprocess, sys
code = subprocess.call([sys.executable, "-m", "nscaching", *sys.argv[1:]])
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, file=sys.stderr)
sys.exit(code)
"""


def write_run(folder: Path, entities: int, triples: int, dim: int, held: int) -> float:
    """Write a run with random parameters; return the gigabytes of its files."""
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, size, triples) for size in (entities, 20, entities)], axis=1)
    rows = rows.astype(np.int32)
    graph = KnowledgeGraph(
        [f"entity {number}" for number in range(entities)],
        [f"relation {number}" for number in range(20)],
        rows[2 * held :],
        rows[:held],
        rows[held : 2 * held],
        name="large",
    )
    config = TrainConfig(data="large", scoring="complex", dim=dim, device="cpu")
    run = RunFolder(folder)
    run.create(config, graph)
    shapes = config.table_shapes(entities, 20)
    tables = {name: torch.randn(*shape) * 0.1 for name, shape in shapes.items()}
    run.write_model(tables["entity"], tables["relation"])
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e9


def asked(*arguments: str) -> dict[str, Any]:
    """Run a command; return its seconds and its peak of memory."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", WATCH, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    peak = int(done.stderr.rsplit("peak ", 1)[1]) / 1e9
    return {"seconds": round(time.monotonic() - started, 1), "peak_gb": round(peak, 2)}


def main() -> int:
    """Write the run, ask it, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--entities", type=int, default=2_000_000)
    parser.add_argument("--triples", type=int, default=6_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--valid", type=int, default=500, help="valid and test facts, each")
    parser.add_argument("--out", type=Path, help="file of the figures")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="large-predict-") as place:
        run = Path(place) / "R"
        size = write_run(run, given.entities, given.triples, given.dim, given.valid)
        about = ["--head", "entity 7", "--relation", "relation 3", "--json", "--device", "cpu"]
        figures: dict[str, Any] = {
            "entities": given.entities,
            "triples": given.triples,
            "dim": given.dim,
            "run_gb": round(size, 2),
            "cores": os.cpu_count(),
            "valid": given.valid,
        }
        if given.valid:
            figures["predict, first time"] = asked("predict", str(run), *about)
        figures["predict"] = asked("predict", str(run), *about)
        figures["neighbours"] = asked("predict", str(run), "--neighbours", "entity 7", "--json")
    if given.out is not None:
        given.out.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
