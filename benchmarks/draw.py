"""Draws the measured results of this folder: ``python benchmarks/draw.py --out docs/images``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median

from nscaching.report.charts import Bars, Chart, Series
from nscaching.report.pictures import write_svg

RESULTS = Path(__file__).parent / "results"
#: Candidates of a softmax, and the sampler that gives them.
KINDS = {"uniform": "uniform", "cached": "nscaching", "all entities": "all"}


def bars(title, seconds):
    """Return bars of seconds by name; the first is ours, and the others say how many times it."""
    ours = next(iter(seconds.values()))
    rows = [
        (name, value, f"{value:.3g} s" + (f", {value / ours:.1f} x" if value != ours else ""))
        for name, value in seconds.items()
    ]
    return Bars(title, rows, log=True)


def side_by_side(out):
    """Training and evaluation against eager PyTorch and PyKEEN, in one process run."""
    found = json.loads((RESULTS / "wn18rr-simple-2-cores.json").read_text())
    pykeen = found["pykeen"]
    epochs = {
        "ours, NSCaching": found["ours"]["epoch_seconds"],
        "eager, NSCaching": found["eager"]["epoch_seconds"],
        "PyKEEN, Bernoulli": pykeen["epoch_seconds"],
    }
    tests = {"ours": pykeen["ours_evaluation_seconds"], "PyKEEN": pykeen["evaluation_seconds"]}
    charts = [bars("One epoch, WN18RR, SimplE", epochs), bars("Filtered test split", tests)]
    write_svg(out / "side-by-side.svg", charts)


def growth(out):
    """Time and memory of larger and larger graphs, with what was planned."""
    time, memory = [], []
    for file in sorted(RESULTS.glob("growth-*.json")):
        rows = json.loads(file.read_text())["rows"]
        triples = [row["triples"] for row in rows]
        name = file.stem.removeprefix("growth-").replace("-", " ")
        time.append(Series(name, triples, [row["epoch_seconds"] for row in rows]))
        for kind, key in (("peak", "peak_bytes"), ("--dry-run", "planned_bytes")):
            memory.append(Series(f"{name}, {kind}", triples, [row[key] / 1e9 for row in rows]))
    charts = [
        Chart(title, lines, "training triples", x_scale="log", y_scale="log")
        for title, lines in (("Seconds per epoch", time), ("Gigabytes", memory))
    ]
    write_svg(out / "growth.svg", charts)


def candidates(out):
    """Test MRR against seconds of training for all, cached and uniform candidates of a softmax."""
    lines = [json.loads(line) for line in (RESULTS / "pool-test-h200.jsonl").open()]
    lines = [run for run in lines if run["scoring"] == "complex" and "epoch_s" in run]
    penalties = {"world": 0.05, "FB15K-237": 0.025, "WN18RR": 0.1, "DEBIAN": 0.02}
    charts = []
    for data, n3 in penalties.items():
        series = []
        for kind, sampler in KINDS.items():
            runs = [
                run
                for run in lines
                if (run["data"], run["sampler"], run["n3"]) == (data, sampler, n3)
            ]
            middle = {key: [median(run[key] for run in runs)] for key in ("epoch_s", "mrr") if runs}
            series += [Series(kind, middle["epoch_s"], middle["mrr"])] if runs else []
        charts.append(Chart(f"{data}: test MRR", series, "seconds of training", zero=False))
    write_svg(out / "candidates.svg", charts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    side_by_side(asked.out)
    growth(asked.out)
    candidates(asked.out)


if __name__ == "__main__":
    main()
