"""Flip single bytes in the files of a run folder: it must load equal or be refused, never wrongly.

    python benchmarks/reliability/flip_bytes.py --flips 2000 --seed 0

Prints counts as JSON; exits with 1 when a flip was silent (loaded, and different) or raised
anything but the package's own error. The files that matter are those a model is loaded and resumed
from; ``metrics.jsonl``, ``trace.jsonl`` and ``report.html`` are diagnostics without digests.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import nscaching as ns
from nscaching.training import RunFolder, checkpoint

FILES = (
    "nscaching.json",
    "config.yaml",
    "entities.txt",
    "relations.txt",
    "graph.safetensors",
    "model.safetensors",
    "checkpoint/state.safetensors",
)
DIAGNOSTIC = ("metrics.jsonl", "trace.jsonl")


def content(folder: Path, with_checkpoint: bool) -> dict[str, Any]:
    """Return everything that a run answers from, to be compared."""
    run = ns.load_run(folder, "cpu")
    found: dict[str, Any] = {
        "entities": run.graph.entities,
        "relations": run.graph.relations,
        "splits": [run.graph.split(name).tobytes() for name in ("train", "valid", "test")],
        "model": {name: table.numpy().tobytes() for name, table in run.model.state().items()},
        "scoring": (run.config.scoring, run.config.dim, run.config.norm),
    }
    if with_checkpoint:
        counters, parts = checkpoint.load(RunFolder(folder).checkpoint)
        found["counters"] = counters
        found["parts"] = {
            (part, name): tensor.numpy().tobytes()
            for part, group in parts.items()
            for name, tensor in group.items()
        }
    return found


def flip(folder: Path, name: str, place: int, value: int) -> bytes:
    """Change one byte of a file; return what the file held."""
    before = (folder / name).read_bytes()
    changed = bytearray(before)
    changed[place] ^= value
    (folder / name).write_bytes(changed)
    return before


def campaign(folder: Path, flips: int, seed: int) -> dict[str, Any]:
    """Flip bytes one at a time, each file as often as the others; return counts and failures."""
    chance = random.Random(seed)
    whole = content(folder, with_checkpoint=True)
    counts: dict[str, Counter[str]] = {name: Counter() for name in (*FILES, *DIAGNOSTIC)}
    failures = []
    present = [
        name for name in counts if (folder / name).is_file() and (folder / name).stat().st_size
    ]
    for number in range(flips):
        name = present[number % len(present)]
        place = chance.randrange((folder / name).stat().st_size)
        value = chance.choice([1 << chance.randrange(8), chance.randrange(1, 256)])
        before = flip(folder, name, place, value)
        try:
            same = content(folder, with_checkpoint=True) == whole
            outcome = "equal" if same else "silent"
        except ns.UserError:
            outcome = "refused"
        except Exception as error:
            outcome = f"raised {type(error).__name__}"
        finally:
            (folder / name).write_bytes(before)
        counts[name][outcome] += 1
        if outcome not in ("equal", "refused") or (name in DIAGNOSTIC and outcome != "equal"):
            failures.append({"file": name, "place": place, "value": value, "outcome": outcome})
    return {
        "flips": flips,
        "seed": seed,
        "files": {name: dict(counted) for name, counted in counts.items() if counted},
        "failures": failures,
    }


def main() -> int:
    """Train a small run, flip bytes in it, print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    workshop = Path(tempfile.mkdtemp())
    try:
        names = [f"entity {number}" for number in range(40)]
        triples = [(names[i], f"r{i % 3}", names[(i * 7 + 3) % 40]) for i in range(40)] + [
            (names[i], f"r{i % 2}", names[(i * 3 + 1) % 40]) for i in range(40)
        ]
        folder = workshop / "R"
        ns.train(triples, out=folder, epochs=2, dim=4, trace=True, progress="none", split=0.1)
        counted = campaign(folder, given.flips, given.seed)
    finally:
        shutil.rmtree(workshop)
    print(json.dumps(counted))
    return 1 if counted["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
