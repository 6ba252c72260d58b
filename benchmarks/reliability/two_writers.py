"""Two trainings into one folder, started at once: one trains and one is refused, every time.

    python benchmarks/reliability/two_writers.py --pairs 20

Prints counts as JSON; exits with 1 when a pair ended otherwise or the folder is not whole.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shares import ONE_THREAD, keep
from starter import Starter

from nscaching.runs.checks import check_folder

PATIENCE = 600.0
SMALL = ["--dim", "4", "--epochs", "3", "--quiet", "--no-report"]


def pair(starter: Starter, data: Path, out: Path) -> str:
    """Start both, wait for both, and say how it went."""
    train = ["train", str(data), *SMALL, "--out", str(out)]
    errors = [out.with_name(f"{out.name}.{one}") for one in "ab"]
    both = [starter.start(train, str(file), {}) for file in errors]
    codes = sorted(process.wait(PATIENCE) for process in both)
    if not check_folder(out).whole:
        return "damaged"
    if codes != [0, 2]:
        return f"exit codes {codes}"
    refused = "".join(file.read_text(encoding="utf-8") for file in errors)
    if "is being written by" in refused:  # the lock may not hold its process number yet
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
    starter = Starter({**os.environ, **ONE_THREAD})
    with tempfile.TemporaryDirectory() as workshop:
        data = Path(workshop) / "g.tsv"
        lines = (f"e{i}\tr{i % 3}\te{(7 * i + 1) % 50}\n" for i in range(400))
        data.write_text("".join(sorted(set(lines))), encoding="utf-8")
        with ThreadPoolExecutor(given.workers) as pool:
            folders = [Path(workshop) / f"R{number}" for number in range(given.pairs)]
            for outcome in pool.map(lambda folder: pair(starter, data, folder), folders):
                counts[outcome] += 1
                keep(given.out, {"pairs": counts.total(), "outcomes": dict(counts)})
        starter.close()
    print(json.dumps({"pairs": counts.total(), "outcomes": dict(counts)}))
    return 0 if all(outcome.startswith("one trained") for outcome in counts) else 1


if __name__ == "__main__":
    sys.exit(main())
