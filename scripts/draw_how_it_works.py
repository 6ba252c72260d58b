"""Draws the pictures of docs/how-it-works.md, from two small runs on the bundled graph.

``python scripts/draw_how_it_works.py --out docs/images`` trains for a minute or two.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import nscaching as ns
from nscaching.interop.tracking import Tracker
from nscaching.report.charts import Chart, Series
from nscaching.report.markup import Html, percent, tag
from nscaching.report.pictures import ccdf_chart, write_svg

ROW, TRIPLE = "France|neighbour of|?", "France|neighbour of|Spain"
SETTINGS: dict[str, Any] = {"scoring": "transd", "dim": 50, "margin": 4, "lr": 3e-3, "epochs": 30}
WATCHED: dict[str, Any] = {"trace": True, "trace_triple": (TRIPLE,), "trace_every": 5}
#: Styles of report/assets/style.css.
DARK, WARM, COOL, GREY, ARROW = 0, 1, 2, 3, 7


def traced_runs() -> dict[str, tuple[list[dict[str, Any]], dict[int, float]]]:
    """Train with both samplers; return the trace and the validation MRR by epoch of each."""
    own = {
        "Bernoulli": {"sampler": "bernoulli"},
        "NSCaching": {"sampler": "nscaching", "rescale": "none", "trace_row": (ROW,)},
    }
    found = {}
    for label, options in own.items():
        curve = ValidMrr()
        run = ns.train("world", track=curve, progress="lines", **SETTINGS, **WATCHED, **options)
        found[label] = (run.trace, curve.mrr)
    return found


class ValidMrr(Tracker):
    """Keeps the validation MRR of a run."""

    def __init__(self) -> None:
        self.mrr: dict[int, float] = {}

    def on_evaluation(self, epoch: int, split: str, values: Mapping[str, float]) -> None:
        """Keep one number."""
        if split == "valid":
            self.mrr[epoch] = values["mrr"]


@dataclass
class Drawing:
    """A picture put together by hand, in units of 10 pixels."""

    size: tuple[int, int]
    drawn: list[Html] = field(default_factory=list)
    title: ClassVar[str] = ""

    def parts(self) -> list[Html]:
        """Return what was drawn so far."""
        return self.drawn

    def legend(self) -> list[tuple[Html, str]]:
        """Return nothing: everything is named where it stands."""
        return []

    def text(self, x: float, y: float, said: str, anchor: str = "start", **more: Any) -> None:
        """Write lines below each other, the first at y."""
        for number, line in enumerate(said.split("\n")):
            place = {"x": 10 * x, "y": 10 * y + 15 * number, "text_anchor": anchor}
            self.drawn.append(tag("text", line, **place, **more))

    def box(self, x: float, y: float, width: float, said: str, style: int) -> None:
        """Draw a box with two lines of text."""
        place = {"x": 10 * x, "y": 10 * y, "width": 10 * width, "height": 52, "rx": 8}
        self.drawn.append(tag("rect", **place, class_=f"mark s{style}"))
        self.text(x + width / 2, y + 2.2, said, "middle")

    def arrow(self, start: tuple[float, float], end: tuple[float, float], said: str = "") -> None:
        """Draw an arrow, with words above its middle."""
        (x1, y1), (x2, y2) = ((10 * x, 10 * y) for x, y in (start, end))
        self.drawn.append(tag("path", d=f"M{x1} {y1}L{x2} {y2}", class_=f"mark s{ARROW}"))
        back = -9 if x2 > x1 or y2 > y1 else 9
        tip = f"l{back} -4v8z" if y1 == y2 else f"l-4 {back}h8z"
        self.drawn.append(tag("path", d=f"M{x2} {y2}{tip}", class_=f"bars s{ARROW}"))
        lines = said.count("\n")
        self.text((x1 + x2) / 20, y1 / 10 - 0.6 - 1.5 * lines, said, "middle")


def draw_scheme(path: Path) -> None:
    """One cache row, and what happens to it in a step."""
    drawn = Drawing((1000, 300))
    drawn.text(0, 1.5, "Sample", class_="heading")
    drawn.box(0, 4, 24, "positive triple\n(France, neighbour of, Spain)", GREY)
    drawn.box(34, 4, 32, "cache row of (France, neighbour of, ?)\nN1 entities", DARK)
    drawn.box(76, 4, 24, "negative triple\n(France, neighbour of, Laos)", WARM)
    drawn.arrow((24, 6.6), (34, 6.6), "look up")
    drawn.arrow((66, 6.6), (76, 6.6), "draw one\nby α2")
    drawn.text(0, 19, "Update", class_="heading")
    drawn.box(0, 21.5, 24, "N2 fresh entities,\nuniform", GREY)
    drawn.box(34, 21.5, 32, "N1 + N2 candidates,\nscored by the model of now", COOL)
    drawn.box(76, 21.5, 24, "loss of the pair,\nstep of the optimiser", GREY)
    drawn.arrow((24, 24.1), (34, 24.1), "join")
    drawn.arrow((88, 9.2), (88, 21.5))
    drawn.arrow((45, 9.2), (45, 21.5))
    drawn.arrow((55, 21.5), (55, 9.2))
    drawn.text(44, 15, "the old row\nis offered too", "end")
    drawn.text(56, 15, "keep N1 by softmax\nof α3 score")
    write_svg(path, [drawn])


def draw_row(trace: list[dict[str, Any]], path: Path) -> None:
    """The hardest entities of the row in each snapshot; countries are bold."""
    graph = ns.load_graph("world")
    continent = graph.relation_id("in continent")
    facts = [
        triple for split in ("train", "valid", "test") for triple in graph.split(split).tolist()
    ]
    countries = {graph.entities[head] for head, relation, _ in facts if relation == continent}
    snapshots = [line for line in trace if line["event"] == "row"]
    drawn = Drawing((150 * len(snapshots), 210))
    for column, snapshot in enumerate(snapshots):
        drawn.text(15 * column, 1.5, f"epoch {snapshot['epoch']}", class_="heading")
        for place, entry in enumerate(snapshot["hardest"][:8]):
            name = shortened(entry["entity"]) + (" *" if entry["split"] else "")
            style = "title" if entry["entity"] in countries else None
            drawn.text(15 * column, 4 + 1.9 * place, name, class_=style)
    drawn.text(0, 20.5, "bold: a country   plain: anything else   *: a held-out fact")
    write_svg(path, [drawn])


def shortened(name: str) -> str:
    """Keep a name within its column."""
    return name if len(name) <= 15 else f"{name[:14]}…"


def draw_curves(runs: dict[str, Any], path: Path) -> None:
    """How many negatives still teach, and what becomes of it."""
    snapshots = [
        line
        for line in runs["Bernoulli"][0]
        if line["event"] == "gradients" and line["side"] == "tail"
    ]
    norms = {
        f"epoch {line['epoch']}": zip(*line["ccdf"], strict=True)
        for line in (snapshots[1], snapshots[3], snapshots[-1])
    }
    share, quality = [], []
    for label, (trace, mrr) in reversed(runs.items()):
        epochs = [line for line in trace if line["event"] == "epoch"]
        x, y = ([line[key] for line in epochs] for key in ("epoch", "nonzero_loss"))
        share.append(Series(label, x, y))
        quality.append(Series(label, [*mrr], [*mrr.values()]))
    charts = [
        ccdf_chart("All tails for France - Spain", norms),
        Chart("Negatives with a loss", share, say=percent, percent=True),
        Chart("MRR on valid", quality),
    ]
    write_svg(path, charts, columns=3)


def main() -> None:
    """Train, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    draw_scheme(out / "cache-scheme.svg")
    runs = traced_runs()
    draw_row(runs["NSCaching"][0], out / "cache-row.svg")
    draw_curves(runs, out / "cache-curves.svg")


if __name__ == "__main__":
    main()
