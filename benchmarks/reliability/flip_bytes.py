"""Flip single bytes in the files of a run folder: it must load equal or be refused, never wrongly.

    python benchmarks/reliability/flip_bytes.py --flips 2000 --workers 16 --out flips.json

Prints counts as JSON; exits with 1 when a flip was silent (loaded, and different) or raised
anything but the package's own error. The files that matter are those a model is loaded and resumed
from; ``metrics.jsonl``, ``trace.jsonl`` and ``report.html`` are diagnostics without digests.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
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


def small_run(workshop: Path) -> Path:
    """Train a small run and return its folder."""
    names = [f"entity {number}" for number in range(40)]
    triples = [(names[i], f"r{i % 3}", names[(i * 7 + 3) % 40]) for i in range(40)] + [
        (names[i], f"r{i % 2}", names[(i * 3 + 1) % 40]) for i in range(40)
    ]
    folder = workshop / "R"
    told: dict[str, Any] = {"epochs": 2, "dim": 4, "trace": True, "split": 0.1}
    ns.train(triples, out=folder, recipe="paper", progress="none", device="cpu", **told)
    return folder


def share(given: tuple[int, int]) -> dict[str, Any]:
    """Run a share of the campaign: so many flips from a seed of its own."""
    with tempfile.TemporaryDirectory() as workshop:
        return campaign(small_run(Path(workshop)), *given)


def main() -> int:
    """Train small runs, flip bytes in them, print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes at once")
    parser.add_argument("--out", type=Path, help="file of the counts")
    given = parser.parse_args()
    each, rest = divmod(given.flips, given.workers)
    shares = [(each + (at < rest), given.seed * 1000 + at) for at in range(given.workers)]
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        parts = pool.map(share, shares)
    files: dict[str, Counter[str]] = {}
    for part in parts:
        for name, counted in part["files"].items():
            files.setdefault(name, Counter()).update(counted)
    total: Counter[str] = sum(files.values(), Counter())
    failures = [failure for part in parts for failure in part["failures"]]
    by_file = {name: dict(counted) for name, counted in files.items()}
    told = {"flips": given.flips, "seed": given.seed, "total": dict(total)}
    counts = {**told, "files": by_file, "failures": failures}
    if given.out is not None:
        given.out.write_text(json.dumps(counts, indent=1) + "\n")
    print(json.dumps(counts))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
