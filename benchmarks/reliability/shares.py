"""Workers of a campaign: each does a share of the cases; counts are kept as they come.

A worker is the same script with ``--share NUMBER``. It prints its counts so far as lines of JSON
(:func:`report`). The campaign adds the last line of every worker up and writes the sum to ``--out``
each time, so that a campaign that is cut leaves what it had counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Workers compute with one thread each.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
#: Seconds between two lines of a worker.
BETWEEN = 2.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what every campaign takes."""
    parser.add_argument("--workers", type=int, default=1, help="processes at once")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after that")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file of the counts, written as they come")
    parser.add_argument("--share", type=int, help="do only this share, in this process")


class Share:
    """The share of one worker: which cases are its own, how long it has, what it has counted."""

    def __init__(self, number: int = 0, of: int = 1, seconds: float = 1e9) -> None:
        self.number, self.of = number, of
        self._end, self._told = time.monotonic() + seconds, 0.0
        self.counts: dict[str, Counter[str]] = {}
        self.failures: list[dict[str, Any]] = []
        self.more: dict[str, Any] = {}  #: what else is told
        self.aloud = False  #: whether counts are printed

    def is_over(self) -> bool:
        """Tell whether the time is up; print the counts now and then."""
        now = time.monotonic()
        if self.aloud and now > self._told + BETWEEN:
            self.report()
            self._told = now
        return now > self._end

    def count(self, what: str, outcome: str, by: int = 1) -> None:
        """Count an outcome of a file or command."""
        self.counts.setdefault(what, Counter())[outcome] += by

    def told(self) -> dict[str, Any]:
        """Return all counts so far."""
        counts = {name: dict(each) for name, each in self.counts.items()}
        return {**self.more, "counts": counts, "failures": self.failures}

    def report(self) -> None:
        """Print the counts so far."""
        print(json.dumps(self.told()), flush=True)


def run_share(given: argparse.Namespace, work: Callable[[Share], None]) -> int:
    """Do one share in this process."""
    share = Share(given.share, given.workers, given.seconds)
    share.aloud = True
    work(share)
    share.report()
    return 0


def run_shares(given: argparse.Namespace, *options: str, kept: str = "files") -> int:
    """Start all workers of the script, keep and print the sum of their counts.

    Args:
        given: what :func:`add_options` added.
        options: those of the campaign itself, given on to the workers.
        kept: name of the counts by file or command in the result.

    """
    started, lock = time.monotonic(), threading.Lock()
    parts: list[dict[str, Any]] = [{"counts": {}, "failures": []} for _ in range(given.workers)]
    command = [sys.executable, sys.argv[0], *options, "--workers", str(given.workers)]
    command += ["--seed", str(given.seed), "--seconds", str(given.seconds), "--share"]

    def added() -> dict[str, Any]:
        sums: dict[str, Counter[str]] = {}
        for part in parts:
            for name, counted in part["counts"].items():
                sums.setdefault(name, Counter()).update(counted)
        total: Counter[str] = sum(sums.values(), Counter())
        more = {name: value for part in parts for name, value in part.items()}
        more |= {"total": dict(total), kept: {name: dict(each) for name, each in sums.items()}}
        more["failures"] = [failure for part in parts for failure in part["failures"]]
        del more["counts"]
        seconds = round(time.monotonic() - started)
        return {**more, "seed": given.seed, "workers": given.workers, "seconds": seconds}

    def listen(share: int) -> None:
        env = {**os.environ, **ONE_THREAD}
        worker = subprocess.Popen([*command, str(share)], stdout=subprocess.PIPE, env=env)
        assert worker.stdout is not None
        for line in worker.stdout:
            if not line.startswith(b"{"):
                print(line.decode(errors="replace"), end="", file=sys.stderr)
                continue
            with lock:
                parts[share] = json.loads(line)
                keep(given.out, added())
        if worker.wait() != 0:
            parts[share]["failures"].append({"what": f"a worker ended with {worker.returncode}"})

    threads = [threading.Thread(target=listen, args=[share]) for share in range(given.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = added()
    keep(given.out, counts)
    print(json.dumps(counts))
    return 1 if counts["failures"] else 0


def keep(file: Path | None, counts: dict[str, Any]) -> None:
    """Write counts to a file, whole or not at all."""
    if file is not None:
        new = file.with_suffix(".new")
        new.write_text(json.dumps(counts, indent=1) + "\n")
        new.replace(file)
