"""Read 20 million triples with 5 million names: seconds and memory, beside polars.

    python benchmarks/reliability/large_read.py --rounds 2 --out large-read.json

Writes the file, then reads it by turns with ``load_graph`` and with polars, each time in a process
of its own. polars reads the three columns (``polars``), and numbers the names as well
(``polars-ids``), which is what a graph needs. Seconds on the clock, seconds of processors and the
peak of memory of each are printed and kept as JSON; on a busy machine the second ones count.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

READERS = ("nscaching", "polars", "polars-ids")
STEP = 500_000  # triples written at once


def write_triples(file: Path, triples: int, names: int, seed: int) -> None:
    """Write random triples in which every name occurs, with 200 relations."""
    chance = np.random.default_rng(seed)
    with file.open("w", encoding="utf-8") as out:
        for first in range(0, triples, STEP):
            count = min(STEP, triples - first)
            heads = (np.arange(first, first + count) * 7919) % names
            tails, relations = chance.integers(names, size=count), chance.integers(200, size=count)
            columns = (heads.tolist(), relations.tolist(), tails.tolist())
            rows = zip(*columns, strict=True)
            out.writelines(
                f"/entity/e{h:07}\t/relation/r{r}\t/entity/e{t:07}\n" for h, r, t in rows
            )


def read(reader: str, file: Path) -> dict[str, Any]:
    """Read the file in this process; return how many triples and names, and what it cost."""
    if reader == "nscaching":
        from nscaching.graph import load_graph
    else:
        import polars as pl
    started, used = time.perf_counter(), time.process_time()
    if reader == "nscaching":
        graph = load_graph(file)
        triples, names = len(graph.train), len(graph.entities)
    else:
        plain: dict[str, Any] = {"separator": "\t", "has_header": False, "quote_char": None}
        table = pl.read_csv(file, new_columns=["h", "r", "t"], **plain)
        triples, names = len(table), 0
        if reader == "polars-ids":
            entities = pl.concat([table["h"], table["t"]]).unique()
            names = len(entities)
            kind = pl.Enum(entities)
            table.with_columns(pl.col("h", "t").cast(kind).to_physical())
    return {
        "reader": reader,
        "triples": triples,
        "names": names,
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def main() -> int:
    """Write the file and read it by turns, or read it once."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--triples", type=int, default=20_000_000)
    parser.add_argument("--names", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file of the outcome")
    parser.add_argument("--read", nargs=2, metavar=("READER", "FILE"), help="read it once")
    given = parser.parse_args()
    if given.read:
        print(json.dumps(read(given.read[0], Path(given.read[1]))))
        return 0
    told: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "large.tsv"
        write_triples(file, given.triples, given.names, given.seed)
        for _ in range(given.rounds):
            for reader in READERS:
                command = [sys.executable, __file__, "--read", reader, str(file)]
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
                told.append({**json.loads(done.stdout), "bytes": file.stat().st_size})
                print(json.dumps(told[-1]), flush=True)
                if given.out is not None:
                    given.out.write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
