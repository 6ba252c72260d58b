"""Draws the pictures of docs/how-it-works.md, from two small runs on the bundled graph.

``python scripts/draw_how_it_works.py --out docs/images`` trains for a minute or two.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nscaching as ns
from nscaching.interop.tracking import Tracker
from nscaching.report.drawing import COLOURS, figure, line_look, save

ROW, TRIPLE = "France|neighbour of|?", "France|neighbour of|Spain"
SETTINGS: dict[str, Any] = {"scoring": "transd", "dim": 50, "margin": 4, "lr": 3e-3, "epochs": 30}
WATCHED: dict[str, Any] = {"trace": True, "trace_triple": (TRIPLE,), "trace_every": 5}
DARK, WARM, COOL, GREY = COLOURS[:4]


def traced_runs() -> dict[str, tuple[list[dict[str, Any]], dict[int, float]]]:
    """Train with both samplers; return the trace and the validation MRR by epoch of each."""
    own = {
        "Bernoulli": {"sampler": "bernoulli"},
        "NSCaching": {"sampler": "nscaching", "rescale": "none", "trace_row": (ROW,)},
    }
    found = {}
    for label, options in own.items():
        curve = Curve()
        run = ns.train("world", track=curve, progress="lines", **SETTINGS, **WATCHED, **options)
        found[label] = (run.trace, curve.mrr)
    return found


class Curve(Tracker):
    """Keeps the validation MRR of a run."""

    def __init__(self) -> None:
        self.mrr: dict[int, float] = {}

    def on_evaluation(self, epoch: int, split: str, values: Mapping[str, float]) -> None:
        """Keep one number."""
        if split == "valid":
            self.mrr[epoch] = values["mrr"]


def draw_scheme(path: Path) -> None:
    """One cache row, and what happens to it in a step."""
    with figure(8.4, 3.3) as drawn:
        axes = drawn.subplots()
        axes.set(xlim=(-1, 101), ylim=(4, 45))
        axes.set_axis_off()
        _box(axes, 0, 29, 22, 9, "positive triple\n(France, neighbour of, Spain)", GREY)
        _box(axes, 33, 29, 30, 9, "cache row of (France, neighbour of, ?)\nN1 entities", DARK)
        _box(axes, 76, 29, 24, 9, "negative triple\n(France, neighbour of, Laos)", WARM)
        _box(axes, 33, 6, 30, 9, "N1 + N2 candidates,\nscored by the model of now", COOL)
        _box(axes, 0, 6, 22, 9, "N2 fresh entities,\nuniform", GREY)
        _box(axes, 76, 6, 24, 9, "loss of the pair,\nstep of Adam", GREY)
        _arrow(axes, (22, 33.5), (33, 33.5), "look up")
        _arrow(axes, (63, 33.5), (76, 33.5), "draw one\n$\\alpha_2$")
        _arrow(axes, (88, 29), (88, 15), "")
        _arrow(axes, (22, 10.5), (33, 10.5), "join")
        _arrow(axes, (43, 29), (43, 15), "")
        _arrow(axes, (54, 15), (54, 29), "")
        axes.text(42, 22, "the old row\nis offered too", ha="right", va="center", fontsize=8)
        axes.text(
            55, 22, "keep N1 by softmax\nof $\\alpha_3$ score", ha="left", va="center", fontsize=8
        )
        axes.text(0, 42, "Sample", weight="bold", fontsize=10)
        axes.text(0, 18, "Update", weight="bold", fontsize=10)
        save(drawn, path)


def _box(
    axes: Any, x: float, y: float, width: float, height: float, text: str, colour: str
) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=1.2"
    axes.add_patch(
        FancyBboxPatch((x, y), width, height, boxstyle=style, fc="white", ec=colour, lw=1.6)
    )
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], text: str) -> None:
    look = {"arrowstyle": "-|>", "color": "#3d3d3d", "lw": 1.2, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=look)
    middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    axes.text(middle[0], middle[1] + 0.8, text, ha="center", va="bottom", fontsize=8)


def draw_row(trace: list[dict[str, Any]], path: Path) -> None:
    """The hardest entities of the row at each look; countries are dark."""
    graph = ns.load_graph("world")
    continent = graph.relation_id("in continent")
    facts = [
        triple for split in ("train", "valid", "test") for triple in graph.split(split).tolist()
    ]
    countries = {graph.entities[head] for head, relation, _ in facts if relation == continent}
    looks = [line for line in trace if line["event"] == "row"]
    with figure(9.6, 3.0) as drawn:
        axes = drawn.subplots()
        axes.set_axis_off()
        axes.set(xlim=(0, len(looks)), ylim=(-9.2, 0.8))
        for column, look in enumerate(looks):
            axes.text(column, 0.2, f"epoch {look['epoch']}", weight="bold", fontsize=9)
            for place, entry in enumerate(look["hardest"][:8]):
                known = entry["entity"] in countries
                axes.text(
                    column,
                    -1.0 - place,
                    shortened(entry["entity"]) + (" *" if entry["split"] else ""),
                    color=DARK if known else WARM,
                    weight="bold" if known else "normal",
                    fontsize=8,
                )
        axes.text(
            0, -9.1, "bold: a country   plain: anything else   *: a held-out fact", fontsize=8
        )
        save(drawn, path)


def shortened(name: str) -> str:
    """Keep a name within its column."""
    return name if len(name) <= 17 else f"{name[:16]}…"


def draw_curves(runs: dict[str, Any], path: Path) -> None:
    """How many negatives still teach, and what becomes of it."""
    with figure(9.6, 3.0) as drawn:
        norms, share, quality = drawn.subplots(1, 3)
        looks = [
            line
            for line in runs["Bernoulli"][0]
            if line["event"] == "gradients" and line["side"] == "tail"
        ]
        for place, look in enumerate([looks[1], looks[3], looks[-1]]):
            x, y = zip(*look["ccdf"], strict=True)
            norms.plot(
                x,
                y,
                label=f"epoch {look['epoch']}",
                drawstyle="steps-pre",
                **{**line_look(place), "marker": ""},
            )
        norms.set(title="All tails for France - Spain", xlabel="gradient norm x")
        norms.set(ylabel="share with norm ≥ x", yscale="log")
        for place, (label, (trace, mrr)) in enumerate(runs.items()):
            look = {**line_look(1 - place), "markevery": 5}
            epochs = [line for line in trace if line["event"] == "epoch"]
            x, y = ([line[key] for line in epochs] for key in ("epoch", "nonzero_loss"))
            share.plot(x, y, label=label, **look)
            quality.plot([*mrr], [*mrr.values()], label=label, **line_look(1 - place))
        share.set(title="Negatives with a loss", xlabel="epoch", ylim=(0, 1))
        quality.set(title="MRR on valid", xlabel="epoch", ylim=(0, None))
        for axes in (norms, share, quality):
            axes.legend()
        save(drawn, path)


def main() -> None:
    """Train, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    draw_scheme(out / "cache-scheme.png")
    runs = traced_runs()
    draw_row(runs["NSCaching"][0], out / "cache-row.png")
    draw_curves(runs, out / "cache-curves.png")


if __name__ == "__main__":
    main()
