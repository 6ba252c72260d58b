"""Mutated files of our own folders: each loads as it was written or is refused with one sentence.

    python benchmarks/reliability/fuzz_folders.py --count 25000 --workers 16 --out fuzz_folders.json

A run, a run in shards, a graph on disk, an embedding of nodes, a comparison, a search and a
reproduction are made. Then one file after another is mutated (bytes flipped, cut, repeated, put in;
tokens of YAML and JSON put in; keys taken out, values of other types put in their place), and the
folder is read as a command reads it. A case is

- ``equal``: all that was read is what was written;
- ``refused``: a ``UserError`` of one or two sentences that names the folder;
- ``redone``: a line of a trial log is not believed, and what came after it would be run again;
- ``silent``, ``crashed``: what must not be.

What people may edit is not compared: most of ``config.yaml``, ``search.yaml`` and the part of
``compare.json`` that says what is asked for, which a resumed experiment checks against its runs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import random
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flip_bytes import content as run_content
from fuzz_readers import limited, mutated, unfit
from shares import Share, add_options, run_share, run_shares

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
SECONDS = 120  # a busy machine stops for seconds


@dataclass
class Kind:
    """A folder: its files and how it is read."""

    files: tuple[str, ...]  #: as ``Path.glob`` has them
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


def read_shards(folder: Path) -> Any:
    """Read a run in shards: its model, and its checkpoint stratum by stratum."""
    from nscaching.training import sharded_checkpoint

    found = run_content(folder, with_checkpoint=False)
    counters, shared, strata = sharded_checkpoint.load(folder / "checkpoint", range(2))
    parts = [shared, *strata.values()]
    kept = [
        {
            (part, name): tensor.numpy().tobytes()
            for part in each
            for name, tensor in each[part].items()
        }
        for each in parts
    ]
    return found, counters, kept


def read_store(folder: Path) -> Any:
    """Read all of a graph on disk."""
    from nscaching.graph import load_graph

    graph = load_graph(folder)
    sides = (graph.rows.head, graph.rows.tail)
    pairs = [part.tobytes() for side in sides for part in vars(side).values()]
    splits = [graph.split(name).tobytes() for name in ("train", "valid", "test")]
    return list(graph.entities), list(graph.relations), splits, pairs


def read_nodes(folder: Path) -> Any:
    """Read an embedding of nodes."""
    import nscaching as ns

    found = ns.load_nodes(folder)
    graph = found.graph
    arrays = (found.vectors, found.context, graph.offsets, graph.neighbours, found.held_out)
    return graph.nodes, [None if each is None else each.tobytes() for each in arrays]


def read_comparison(folder: Path) -> Any:
    """Read what a resumed comparison takes from an earlier session."""
    from nscaching.experiments.compare import _earlier

    before = _earlier(folder)
    return [] if before is None else [vars(result) for result in before.runs]


def read_search(folder: Path) -> Any:
    """Read what a resumed search replays."""
    from nscaching.experiments.tune.trials import SearchFolder

    search = SearchFolder(folder)
    search.holds_one()
    search.read()
    return search.log.events()[0]


def read_reproduction(folder: Path) -> Any:
    """Read the rows of a reproduction, which say what is done."""
    from nscaching.experiments.paper.results import Results

    return Results(folder).rows


RUN = ("nscaching.json", "config.yaml", "entities.txt", "relations.txt", "graph.safetensors",
       "model.safetensors", "checkpoint/state.safetensors", "metrics.jsonl", "trace.jsonl",
       "calibration.json", "rejected.tsv")  # fmt: skip
SHARDED = ("nscaching.json", "config.yaml", "entities.txt", "relations.txt", "graph.safetensors",
           "model.safetensors.index.json", "model-*-of-*.safetensors", "checkpoint/latest.json",
           "checkpoint/epoch-*/*.safetensors", "metrics.jsonl")  # fmt: skip
KINDS = {
    "run": Kind(RUN, read_run),
    "shards": Kind(SHARDED, read_shards),
    "store": Kind(("nscaching.json", "*.npy", "*.names"), read_store),
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
    "reproduction": Kind(("table-7.json",), read_reproduction, logs=("table-7.json",)),
}  # fmt: skip


def make_folders(place: Path) -> dict[str, Path]:
    """Train small ones of every kind that can be made here."""
    import nscaching as ns
    from nscaching.cli.main import app

    triples = [(f"e{i}", f"r{i % 3}", f"e{(7 * i + 1) % 40}") for i in range(240)]
    small: dict[str, Any] = {"dim": 4, "progress": "none", "device": "cpu", "recipe": "paper"}
    old = ns.train(triples, out=place / "old", epochs=1, trace=True, **small)
    rejected = [answer.triple for answer in old.discover(2)]
    run = old.update([("e1", "r1", "new")], reject=rejected, out=place / "run", epochs=1,
                     progress="none")  # fmt: skip
    run.probabilities([("e1", "r1", "e8")])  # writes calibration.json
    halves: dict[str, Any] = {"sampler": "nscaching", "strata": 2, "split": 0.1}
    ns.train(triples, out=place / "shards", epochs=2, **halves, **small)
    edges = place / "edges.txt"
    edges.write_text("".join(f"n{i} n{(i * 3 + 1) % 40}\n" for i in range(40)))
    ns.embed_nodes(edges, out=place / "nodes", dim=4, epochs=1, progress="none")
    data = place / "g.tsv"
    data.write_text("".join("\t".join(triple) + "\n" for triple in triples))
    ns.compare(data, "uniform,bernoulli", seeds=[0], out=place / "comparison", epochs=1, **small)
    if importlib.util.find_spec("duckdb") is not None:
        ns.ingest(data, place / "store", split=0.1, threads=1)
    if importlib.util.find_spec("smac") is not None:
        ns.tune(data, out=place / "search", trials=2, epochs=1, valid_every=1, **small)
    cell = [
        "--dataset",
        "WN18RR",
        "--scoring",
        "simple",
        "--mode",
        "scratch",
        "--sampler",
        "bernoulli",
    ]
    cell += ["--on", "shape/400", "--budget", "1", "--device", "cpu", "--quiet", "--out"]
    with contextlib.redirect_stdout(io.StringIO()):
        app(["reproduce", "table-7", *cell, str(place / "reproduction")], standalone_mode=False)
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


def files_of(kind: Kind, folder: Path) -> list[str]:
    """Return the files of a folder that are mutated."""
    found = [sorted(folder.glob(pattern)) for pattern in kind.files]
    return [str(file.relative_to(folder)) for files in found for file in files]


def one_case(kind: Kind, folder: Path, whole: Any, name: str, chance: random.Random) -> str:
    """Mutate one file, read the folder, put the file back; say how it ended."""
    file = folder / name
    before = file.read_bytes()
    changed = mutation(before, name, chance)
    file.write_bytes(changed)
    others = {n: (folder / n).read_bytes() for n in files_of(kind, folder) if n != name}
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


def campaign(place: Path, count: int, seed: int, share: Share) -> None:
    """Do a share of the cases: the files of all folders in turn."""
    folders = make_folders(place)
    whole = {name: KINDS[name].read(folder) for name, folder in folders.items()}
    files = [(name, file) for name in folders for file in files_of(KINDS[name], folders[name])]
    for at in range(share.number, count, share.of):
        if share.is_over():
            return
        kind, name = files[at % len(files)]
        chance = random.Random(f"{kind}/{name}/{seed}/{at}")
        ended = one_case(KINDS[kind], folders[kind], whole[kind], name, chance)
        good = ended in ("equal", "refused", "redone")
        share.count(f"{kind}/{name}", ended if good or ended == "silent" else "crashed")
        if not good:
            share.failures.append({"file": f"{kind}/{name}", "case": at, "what": ended[-900:]})


def main() -> int:
    """Start the workers, or do the share of one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="cases over all files")
    add_options(parser)
    given = parser.parse_args()
    if given.share is None:
        return run_shares(given, "--count", str(given.count))
    with tempfile.TemporaryDirectory(prefix="fuzz-folders-") as place:
        return run_share(given, lambda s: campaign(Path(place), given.count, given.seed, s))


if __name__ == "__main__":
    raise SystemExit(main())
