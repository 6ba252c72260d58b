"""How long tries and tuned cells were expected to take, looking back, and how long they took.

    python benchmarks/expected_times.py --results results --workers 10

Expected from the stored costs alone, and with the times of the other data sets known. A line per
data set and sampler: runs, seconds expected and taken, divided by the workers. Some of the stored
costs were fitted to the runs in ``results/``, so for those it tells how well they fit.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from nscaching.experiments.paper.expected import (
    cost_of,
    epochs_share,
    mean_cost,
    shared,
    sizes_of,
    slowness,
)
from nscaching.experiments.paper.plan import Request, cell_settings, stand_ins
from nscaching.experiments.paper.results import Results, Row, cell_of, is_smoke


def expected(row: Row, known: Sequence[Row], request: Request) -> float:
    """Return the seconds of a finished run as a plan would have said them, with some runs known."""
    cell, sizes = cell_of(row), sizes_of(row["dataset"], None)
    options = stand_ins(cell, cell_settings(cell, request), request)
    cost = mean_cost([cost_of(cell, each, sizes, "cuda") for each in options])
    like = cell.dataset, cell.scoring, cell.sampler
    slower = slowness(known, row["hardware"], request.workers, None, like)
    slower = slower or shared(cell.sampler, request.workers, "cuda")
    return cost.seconds(slower * epochs_share(known, cell, options[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--tries", type=int, default=8)
    asked = parser.parse_args()
    request = Request(tries=asked.tries, workers=asked.workers)
    rows = [
        row
        for row in Results(asked.results).rows
        if row.get("workers") == asked.workers
        and row["hardware"]["gpu"]
        and row["scoring"]
        and row["kind"] in ("try", "longer", "tuned")
        and not (row["error"] or is_smoke(row))
    ]
    every = list({cell_of(row).identity: row for row in rows}.values())
    for name in ("stored costs alone", "other data sets known"):
        totals = [0.0, 0.0]
        print(name)
        for dataset in dict.fromkeys(row["dataset"] for row in every):
            known = [row for row in rows if row["dataset"] != dataset]
            known = [] if name == "stored costs alone" else known
            for sampler in dict.fromkeys(row["sampler"] for row in every):
                runs = [r for r in every if (r["dataset"], r["sampler"]) == (dataset, sampler)]
                said = sum(expected(row, known, request) for row in runs) / asked.workers
                took = sum(max(r.get("wall") or 0.0, r.get("seconds") or 0.0) for r in runs)
                took /= asked.workers
                if runs:
                    print(f"  {dataset} {sampler}: {len(runs)} runs, {said:.0f} s, {took:.0f} s")
                totals = [totals[0] + said, totals[1] + took]
        print(f"  in all: {len(every)} runs, {totals[0]:.0f} s expected, {totals[1]:.0f} s taken")


if __name__ == "__main__":
    main()
