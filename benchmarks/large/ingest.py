"""Time and peak memory of ``nscaching ingest``, beside DuckDB alone numbering the same file.

    python benchmarks/large/ingest.py --facts 10000000 --entities 2000000 --memory 4GB

Each is a process of its own, whose memory (with that of its children) is looked at every 50 ms: of
the resident bytes those of mapped files are counted too, and given apart, since the system may drop
them. DuckDB alone reads the file, numbers the names and writes the ids to Parquet: no sorting, no
split, no pairs. One line of JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generate import Generated, write

DUCKDB = """
import duckdb, sys
source, out, memory, threads = sys.argv[1:]
read = f"read_parquet('{source}')"
if not source.endswith("parquet"):
    names = "{'head': 'VARCHAR', 'relation': 'VARCHAR', 'tail': 'VARCHAR'}"
    read = f"read_csv('{source}', delim='\\t', quote='', header=false, columns={names})"
base = duckdb.connect(f"{out}.duckdb", config={"memory_limit": memory, "threads": int(threads),
    "temp_directory": f"{out}.tmp", "preserve_insertion_order": False})
ends = f"SELECT head AS name FROM {read} UNION ALL SELECT tail FROM {read}"
for kind, names in (("entities", ends), ("relations", f"SELECT relation AS name FROM {read}")):
    base.execute(f"CREATE TABLE {kind} AS SELECT name, row_number() OVER () - 1 AS id "
        f"FROM (SELECT DISTINCT name FROM ({names}))")
base.execute(f"COPY (SELECT a.id::INT h, relations.id::INT r, b.id::INT t FROM {read} AS facts "
    "JOIN entities a ON facts.head = a.name JOIN entities b ON facts.tail = b.name "
    f"JOIN relations ON facts.relation = relations.name) TO '{out}' (FORMAT parquet)")
"""


def measured(command: list[str]) -> dict[str, float]:
    """Run a command; return its seconds, its processor seconds and its peak memory in GB."""
    code, told = watched(command)
    if code:
        raise SystemExit(f"{command[:3]} failed")
    return told


def watched(command: list[str], limit: float = math.inf) -> tuple[int, dict[str, float]]:
    """Run a command, at most ``limit`` seconds; return its code and what :func:`measured` does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = peak_own = 0
    while process.poll() is None:
        total, own = memory_of(process.pid)
        peak, peak_own = max(peak, total), max(peak_own, own)
        time.sleep(0.05)
        if time.perf_counter() - begin > limit:
            process.kill()
            process.wait()
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = {"seconds": seconds, "cpu_seconds": cpu, "peak_gb": peak / 1e9}
    told["peak_gb_without_mapped"] = peak_own / 1e9
    return process.returncode, {name: round(value, 2) for name, value in told.items()}


def memory_of(pid: int) -> tuple[int, int]:
    """Return resident bytes of a process and its children, with and without mapped files."""
    total = own = 0
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        sizes = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Rss"))
        kilobytes = {name: int(size.split()[0]) for name, size in sizes.items()}
        own = 1024 * (kilobytes["RssAnon"] + kilobytes["RssShmem"])
        total = own + 1024 * kilobytes["RssFile"]
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, KeyError):  # it has ended
        return total, own
    for child in children:
        more, more_own = memory_of(int(child))
        total, own = total + more, own + more_own
    return total, own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", type=int, default=10_000_000)
    parser.add_argument("--entities", type=int, default=2_000_000)
    parser.add_argument("--kind", choices=["parquet", "tsv"], default="tsv")
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--split", type=float, default=0.001)
    parser.add_argument(
        "--work", type=Path, help="folder for the files, kept; else a temporary one"
    )
    given = parser.parse_args()
    work = given.work or Path(tempfile.mkdtemp(prefix="ingest-"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        file = work / f"facts-{given.facts}.{given.kind}"
        begin = time.perf_counter()
        made = Generated(given.facts, given.entities)
        if not file.exists():
            write(made, file)
        line = {"facts": given.facts, "entities": given.entities, "kind": given.kind}
        line |= {"memory": given.memory, "threads": given.threads, "bytes": file.stat().st_size}
        line |= {"processors": len(os.sched_getaffinity(0)), "best_mrr": made.best_mrr}
        line["generate_seconds"] = round(time.perf_counter() - begin, 2)
        limits = ["--memory", given.memory, "--threads", str(given.threads), "--quiet"]
        ours = [sys.executable, "-m", "nscaching", "ingest", str(file), "--overwrite"]
        ours += ["--out", str(work / "store"), "--split", str(given.split), *limits]
        line["ingest"] = measured(ours)
        line["store_bytes"] = sum(f.stat().st_size for f in (work / "store").iterdir())
        (work / "ids.parquet.duckdb").unlink(missing_ok=True)
        alone = [str(file), str(work / "ids.parquet"), given.memory, str(given.threads)]
        line["duckdb_alone"] = measured([sys.executable, "-c", DUCKDB, *alone])
        begin = time.perf_counter()
        opening = (
            "import sys, nscaching as ns; print(ns.load_graph(sys.argv[1]).rows.head.anchor[:1])"
        )
        line["open"] = measured([sys.executable, "-c", opening, str(work / "store")])
        print(json.dumps(line))
    finally:
        if given.work is None:
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
