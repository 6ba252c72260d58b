"""Draws the measured results of this folder: ``python benchmarks/draw.py --out docs/images``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from nscaching.report.drawing import figure, line_look, save

RESULTS = Path(__file__).parent / "results"


def bars(axes, names, seconds, title, ours=0):
    axes.barh(
        names, seconds, color=["#1b1b3a" if i == ours else "#8a8d91" for i in range(len(names))]
    )
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(min(seconds) / 2, max(seconds) * 6)
    for place, value in enumerate(seconds):
        note = (
            f" {value:.3g} s" if place == ours else f" {value:.3g} s, {value / seconds[ours]:.1f} x"
        )
        axes.text(value, place, note, va="center")
    axes.set_title(title)
    axes.grid(visible=False)


def side_by_side(out):
    """Training and evaluation against eager PyTorch and PyKEEN, in one process run."""
    found = json.loads((RESULTS / "wn18rr-simple-2-cores.json").read_text())
    pykeen = found["pykeen"]
    with figure(8, 3.2) as drawn:
        left, right = drawn.subplots(1, 2)
        epochs = [found["ours"], found["eager"], pykeen]
        names = ["ours, NSCaching", "eager, NSCaching", "PyKEEN, Bernoulli"]
        bars(left, names, [row["epoch_seconds"] for row in epochs], "One epoch, WN18RR, SimplE")
        tests = [pykeen["ours_evaluation_seconds"], pykeen["evaluation_seconds"]]
        bars(right, ["ours", "PyKEEN"], tests, "Filtered test split")
        save(drawn, out / "side-by-side.png")


def growth(out):
    """Time and memory of larger and larger graphs, with what was planned."""
    files = sorted(RESULTS.glob("growth-*.json"))
    with figure(8, 3.2) as drawn:
        time, memory = drawn.subplots(1, 2)
        for place, file in enumerate(files):
            rows = json.loads(file.read_text())["rows"]
            triples = [row["triples"] for row in rows]
            name = file.stem.removeprefix("growth-").replace("-", " ")
            seconds = [row["epoch_seconds"] for row in rows]
            time.plot(triples, seconds, label=name, **line_look(place))
            peaks = [row["peak_bytes"] / 1e9 for row in rows]
            memory.plot(triples, peaks, label=f"{name}, peak", **line_look(2 * place))
            planned = [row["planned_bytes"] / 1e9 for row in rows]
            memory.plot(triples, planned, label=f"{name}, --dry-run", **line_look(2 * place + 1))
        for axes, title in ((time, "Seconds an epoch"), (memory, "Gigabytes")):
            axes.set(xscale="log", yscale="log", xlabel="training triples")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g} M")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(
                lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else ""
            )
            axes.xaxis.set_minor_formatter(lambda value, _: "")
            axes.set_title(title)
            axes.legend()
        save(drawn, out / "growth.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    side_by_side(asked.out)
    growth(asked.out)


if __name__ == "__main__":
    main()
