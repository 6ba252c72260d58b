"""Mutated files of our own folders: each loads as it was written or is refused with one sentence.

    python benchmarks/reliability/fuzz_folders.py --count 25000 --workers 16 --out fuzz_folders.json

A run, an embedding of nodes, a comparison and a search are made. Then one file after another is
mutated (bytes flipped, cut, repeated, put in; tokens of YAML and JSON put in; keys taken out,
values of other types put in their place), and the folder is read as a command reads it. A case is

- ``equal``: all that was read is what was written;
- ``refused``: a ``UserError`` of one or two sentences that names the folder;
- ``redone``: a line of a trial log is not believed, and what came after it would be run again;
- ``silent``, ``crashed``: what must not be.

What people may edit is not compared: most of ``config.yaml``, ``search.yaml`` and the part of
``compare.json`` that says what is asked for, which a resumed experiment checks against its runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flip_bytes import content as run_content
from fuzz_readers import limited, mutated, unfit

from nscaching.errors import UserError

TOKENS = [b"!!int abc", b"!!python/object:os.system", b"NaN", b"Infinity", b"null", b"true", b"{}"]
TOKENS += [b"9" * 5000, b"-1", b"1e999", b"[" * 3000, b"&a [*a, *a]", b"\xff", b"\x00", b'"', b": "]
VALUES = [
    None,
    True,
    -1,
    0,
    10**30,
    1.5,
    float("nan"),
    "",
    "x",
    [],
    {},
    [[]],
    "9" * 5000,
    "\x1b[31m",
]
SECONDS = 20


@dataclass
class Kind:
    """A folder: its files and how it is read."""

    files: tuple[str, ...]
    read: Callable[[Path], Any]
    logs: tuple[str, ...] = ()  #: files of which a part may be dropped


def read_run(folder: Path) -> Any:
    """Read everything that a run answers from, and what it tells of its training."""
    import nscaching as ns

    found = run_content(folder, with_checkpoint=True)
    run = ns.load_run(folder, "cpu")
    run.folder.read_trace()
    run.folder.summary()
    found["claims"] = run.probabilities([("e1", "r1", "e8"), ("e2", "r2", "e15")]).tobytes()
    found["rejected"] = run.rejected
    return found


def read_nodes(folder: Path) -> Any:
    """Read an embedding of nodes."""
    import nscaching as ns

    found = ns.load_nodes(folder)
    graph = found.graph
    arrays = (found.vectors, found.context, graph.offsets, graph.neighbours, found.held_out)
    return graph.nodes, [None if each is None else each.tobytes() for each in arrays]


def read_comparison(folder: Path) -> Any:
    """Read what a resumed comparison takes from an earlier session."""
    from nscaching.experiments.compare.api import _earlier

    before = _earlier(folder)
    return [] if before is None else [vars(result) for result in before.runs]


def read_search(folder: Path) -> Any:
    """Read what a resumed search replays."""
    from nscaching.experiments.tune.trials import SearchFolder

    search = SearchFolder(folder)
    search.holds_one()
    search.read()
    return search.log.events()


RUN = ("nscaching.json", "config.yaml", "entities.txt", "relations.txt", "graph.safetensors",
       "model.safetensors", "checkpoint/state.safetensors", "metrics.jsonl", "trace.jsonl",
       "calibration.json", "rejected.tsv")  # fmt: skip
KINDS = {
    "run": Kind(RUN, read_run),
    "nodes": Kind(
        ("nscaching.json", "config.yaml", "nodes.txt", "graph.safetensors", "model.safetensors",
         "summary.json"),
        read_nodes,
    ),
    "comparison": Kind(
        ("nscaching.json", "compare.json", "trials.jsonl"), read_comparison, logs=("trials.jsonl",)
    ),
    "search": Kind(
        ("nscaching.json", "search.yaml", "trials.jsonl"), read_search, logs=("trials.jsonl",)
    ),
}  # fmt: skip


def make_folders(place: Path) -> dict[str, Path]:
    """Train small ones of every kind that can be made here."""
    import nscaching as ns

    triples = [(f"e{i}", f"r{i % 3}", f"e{(7 * i + 1) % 40}") for i in range(240)]
    small: dict[str, Any] = {"dim": 4, "progress": "none", "device": "cpu", "recipe": "paper"}
    old = ns.train(triples, out=place / "old", epochs=1, trace=True, **small)
    rejected = [answer.triple for answer in old.discover(2)]
    run = old.update([("e1", "r1", "new")], reject=rejected, out=place / "run", epochs=1,
                     progress="none")  # fmt: skip
    run.probabilities([("e1", "r1", "e8")])  # writes calibration.json
    edges = place / "edges.txt"
    edges.write_text("".join(f"n{i} n{(i * 3 + 1) % 40}\n" for i in range(40)))
    ns.embed_nodes(edges, out=place / "nodes", dim=4, epochs=1, progress="none")
    data = place / "g.tsv"
    data.write_text("".join("\t".join(triple) + "\n" for triple in triples))
    ns.compare(data, "uniform,bernoulli", seeds=[0], out=place / "comparison", epochs=1, **small)
    if importlib.util.find_spec("smac") is not None:
        ns.tune(data, out=place / "search", trials=2, epochs=1, valid_every=1, **small)
    return {name: place / name for name in KINDS if (place / name).exists()}


# Mutations ----------------------------------------------------------------------------------------


def mutation(data: bytes, name: str, chance: random.Random) -> bytes:
    """Change a file: its bytes, or the structure that a parser sees."""
    if name.endswith((".json", ".jsonl")) and chance.random() < 0.4:
        return _restructured(data, name, chance)
    if chance.random() < 0.25:
        at = chance.randrange(len(data) + 1)
        return data[:at] + chance.choice(TOKENS) + data[at + chance.choice([0, 1, 8]) :]
    return mutated(data, chance)


def _restructured(data: bytes, name: str, chance: random.Random) -> bytes:
    lines = data.split(b"\n") if name.endswith(".jsonl") else [data]
    at = chance.randrange(len(lines))
    try:
        content = json.loads(lines[at])
    except ValueError:
        return data + b"[]"
    if chance.random() < 0.1:
        content = chance.choice(VALUES)
    else:
        _change(content, chance)
    lines[at] = json.dumps(content).encode()
    return b"\n".join(lines)


def _change(content: Any, chance: random.Random) -> None:
    """Take a member out, or put another value in its place, at any depth."""
    if not isinstance(content, dict | list) or not content:
        return
    key = chance.choice(list(content) if isinstance(content, dict) else list(range(len(content))))
    if isinstance(content[key], dict | list) and content[key] and chance.random() < 0.7:
        _change(content[key], chance)
    elif chance.random() < 0.3:
        del content[key]
    else:
        content[key] = chance.choice(VALUES)


# Cases --------------------------------------------------------------------------------------------


def one_case(kind: Kind, folder: Path, whole: Any, name: str, chance: random.Random) -> str:
    """Mutate one file, read the folder, put the file back; say how it ended."""
    file = folder / name
    before = file.read_bytes()
    changed = mutation(before, name, chance)
    file.write_bytes(changed)
    others = {n: (folder / n).read_bytes() for n in kind.files if n != name}
    try:
        with limited(SECONDS):
            found = kind.read(folder)
    except UserError as error:
        return "refused" if not unfit(str(error), str(folder)) else f"unfit message: {error}"
    except BaseException:
        return traceback.format_exc(limit=-4)
    finally:
        file.write_bytes(before)
        for other, data in others.items():
            if (folder / other).read_bytes() != data:
                (folder / other).write_bytes(data)
    if found == whole:
        return "equal"
    if name in kind.logs and found == whole[: len(found)]:
        return "redone"
    return "silent"


def campaign(place: Path, share: int, shares: int, count: int, seed: int) -> dict[str, Any]:
    """Run this worker's share of the cases, file by file."""
    counts: dict[str, Counter[str]] = {}
    failures = []
    for kind_name, folder in make_folders(place).items():
        kind = KINDS[kind_name]
        whole = kind.read(folder)
        for at in range(share, count, shares):
            name = kind.files[at % len(kind.files)]
            chance = random.Random(f"{kind_name}/{name}/{seed}/{at}")
            ended = one_case(kind, folder, whole, name, chance)
            good = ended in ("equal", "refused", "redone")
            outcome = ended if good else "silent" if ended == "silent" else "crashed"
            counts.setdefault(f"{kind_name}/{name}", Counter())[outcome] += 1
            if not good:
                failures.append({"file": f"{kind_name}/{name}", "case": at, "what": ended[-900:]})
    return {"files": {name: dict(each) for name, each in counts.items()}, "failures": failures}


def added(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Add the counts of all workers up."""
    files: dict[str, Counter[str]] = {}
    for part in parts:
        for name, counted in part["files"].items():
            files.setdefault(name, Counter()).update(counted)
    total: Counter[str] = sum(files.values(), Counter())
    return {
        "cases": total.total(),
        "total": dict(total),
        "files": {name: dict(counted) for name, counted in files.items()},
        "failures": [failure for part in parts for failure in part["failures"]],
    }


def main() -> int:
    """Start the workers, add their counts up and print them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="cases per kind of folder")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file of the counts")
    parser.add_argument("--share", type=int, help="do only this share, in this process")
    given = parser.parse_args()
    if given.share is not None:
        with tempfile.TemporaryDirectory(prefix="fuzz-folders-") as place:
            told = campaign(Path(place), given.share, given.workers, given.count, given.seed)
        print(json.dumps(told))
        return 0
    started = time.monotonic()
    again = [sys.executable, __file__, "--workers", str(given.workers), "--seed", str(given.seed)]
    again += ["--count", str(given.count)]
    one = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    workers = [
        subprocess.Popen([*again, "--share", str(share)], stdout=-1, env={**os.environ, **one})
        for share in range(given.workers)
    ]
    outputs = [worker.communicate()[0] for worker in workers]
    died = [worker.returncode for worker in workers if worker.returncode != 0]
    counts = added([json.loads(output) for output in outputs if output])
    counts["failures"] += [{"what": f"a worker ended with {code}"} for code in died]
    counts |= {"seed": given.seed, "seconds": round(time.monotonic() - started)}
    if given.out is not None:
        given.out.write_text(json.dumps(counts, indent=1) + "\n")
    print(json.dumps(counts))
    return 1 if counts["failures"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
