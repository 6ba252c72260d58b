"""Two trainings into one folder, started at once: one trains and one is refused, every time.

    python benchmarks/reliability/two_writers.py --pairs 20

Prints counts as JSON; exits with 1 when a pair ended otherwise or the folder is not whole.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COMMAND = [sys.executable, "-m", "nscaching"]
SMALL = ["--dim", "4", "--epochs", "3", "--quiet", "--no-report"]


def pair(data: Path, out: Path) -> str:
    """Start both, wait for both, and say how it went."""
    train = [*COMMAND, "train", str(data), *SMALL, "--out", str(out)]
    both = [
        subprocess.Popen(train, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[1] for process in both]
    codes = sorted(process.returncode for process in both)
    check = subprocess.run([*COMMAND, "check", str(out)], capture_output=True, check=False)
    if check.returncode != 0:
        return "damaged"
    if codes != [0, 2]:
        return f"exit codes {codes}"
    refused = "".join(said)
    if "is being written by process" in refused:
        return "one trained, one was told who writes"
    return "one trained, one came later" if "holds a run already" in refused else refused.strip()


def main() -> int:
    """Run the pairs and print how many ended in which way."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1, help="pairs at once")
    parser.add_argument("--out", type=Path, help="file of the counts")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as workshop:
        data = Path(workshop) / "g.tsv"
        lines = (f"e{i}\tr{i % 3}\te{(7 * i + 1) % 50}\n" for i in range(400))
        data.write_text("".join(sorted(set(lines))), encoding="utf-8")
        with ThreadPoolExecutor(given.workers) as pool:
            folders = [Path(workshop) / f"R{number}" for number in range(given.pairs)]
            counts.update(pool.map(lambda folder: pair(data, folder), folders))
    told = json.dumps({"pairs": given.pairs, "outcomes": dict(counts)})
    if given.out is not None:
        given.out.write_text(told + "\n")
    print(told)
    return 0 if all(outcome.startswith("one trained") for outcome in counts) else 1


if __name__ == "__main__":
    sys.exit(main())
