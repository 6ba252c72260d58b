"""Figures from rows: each way to draw takes the panels of a definition and writes one picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.experiments.paper.cells import Cell
from nscaching.experiments.paper.definitions import Definition
from nscaching.experiments.paper.rows import Row, identity, is_smoke
from nscaching.experiments.paper.searches import draw_searches
from nscaching.report.drawing import figure, line_look, save

#: A cell with its row; a panel is a list of them under a title.
Pair = tuple[Cell, Row]
Panels = dict[str, list[Pair]]
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]
#: A first stretch that is so many times as slow as the others was spent compiling.
_COMPILING = 3
#: More lines than this have their legend below the panel, where it hides none of them.
_MOST_BESIDE = 4


def draw(
    definition: Definition, cells: Iterable[Cell], rows: Iterable[Row], out: Path
) -> list[Path]:
    """Draw a figure from the rows there are; tables, and figures without rows, draw nothing.

    A picture of a smoke run has a name and a title of its own.
    """
    rows = list(rows)
    panels = panels_of(cells, rows)
    if definition.name.startswith("table") or not panels:
        return []
    smoke = any(is_smoke(row) for row in rows)
    stem = f"smoke-{definition.name}" if smoke else definition.name
    if definition.draw == "searches":
        return draw_searches(panels, stem, out)
    drawn = _WAYS[definition.draw](panels)
    title = f"Smoke run, no result: {definition.title}" if smoke else definition.title
    return [_picture(out / f"{stem}.png", title, drawn)] if drawn else []


def panels_of(cells: Iterable[Cell], rows: Iterable[Row]) -> Panels:
    """Bring cells and their rows together, by panel, or by data set and scoring function."""
    found = {identity(row): row for row in rows if not row["error"]}
    panels: Panels = {}
    for cell in cells:
        row = found.get(cell.identity)
        if row is not None:
            title = cell.panel or f"{cell.dataset}, {cell.scoring}"
            panels.setdefault(title, []).append((cell, row))
    return panels


class Panel:
    """What one part of a figure shows."""

    def __init__(self, title: str, lines: Lines, x: str, y: str, **axes: Any) -> None:
        self.title, self.lines, self.x, self.y, self.axes = title, lines, x, y, axes


def _named(pairs: Sequence[Pair]) -> list[tuple[str, Row]]:
    """Return rows with what sets their cells apart; what all cells share goes without saying."""
    parts = [
        [*cell.label.split(", "), *([] if cell.seed == 0 else [f"seed {cell.seed}"])]
        for cell, _ in pairs
    ]
    shared = set.intersection(*map(set, parts)) if len(parts) > 1 else set()
    names = [", ".join(part for part in own if part not in shared) for own in parts]
    return [(name or cell.label, row) for name, (cell, row) in zip(names, pairs, strict=True)]


def _curves(panels: Panels) -> list[Panel]:
    """Draw MRR above, Hits@10 below, each against seconds of training."""
    shown = []
    for measure, field in (("MRR on valid", "mrr"), ("Hits@10 on valid", "hits_at_10")):
        for title, pairs in panels.items():
            lines = {
                name: (_steady_seconds(row["curve"]), row["curve"][field])
                for name, row in _named(pairs)
            }
            shown.append(Panel(title, lines, "seconds of training, not compiling", measure))
    return shown


def _steady_seconds(curve: Mapping[str, Sequence[float]]) -> list[float]:
    """Return the time of a curve's points without that of compiling kernels.

    Kernels are compiled in the first epoch: if the first stretch is far slower than the others, it
    is taken to have run at their median speed.
    """
    epochs, seconds = np.diff([0, *curve["epochs"]]), np.diff([0, *curve["seconds"]])
    speeds = seconds / epochs
    usual = float(np.median(speeds[1:])) if len(speeds) > 1 else np.inf
    if len(speeds) and speeds[0] > _COMPILING * usual:
        speeds[0] = usual
    return np.cumsum(speeds * epochs).tolist()  # type: ignore[no-any-return]


def _sweep(panels: Panels) -> list[Panel]:
    """Draw test MRR against the option that names the panel, a line for each other value."""
    shown = []
    for option, pairs in panels.items():
        points: dict[str, list[tuple[float, float]]] = {}
        for cell, row in pairs:
            others = {k: v for k, v in cell.options.items() if k != option}
            name = ", ".join(f"{k} = {v}" for k, v in others.items())
            points.setdefault(name, []).append((cell.options[option], row["test"]["mrr"]))
        lines = {name: _columns(sorted(each)) for name, each in points.items()}
        scale = {"xscale": ("symlog", {"linthresh": 0.01 if option == "alpha1" else 0.1})}
        shown.append(Panel(f"impact of {option}", lines, option, "MRR on test", **scale))
    return shown


def _relative(panels: Panels) -> list[Panel]:
    """Draw MRR and time an epoch over n, as shares of those of n = 0."""
    shown = []
    for title, pairs in panels.items():
        first = next((row for cell, row in pairs if cell.options["lazy"] == 0), None)
        if first is None:
            continue
        x = [float(cell.options["lazy"]) for cell, _ in pairs]
        lines = {
            "MRR on test": (x, [r["test"]["mrr"] / first["test"]["mrr"] for _, r in pairs]),
            "time an epoch": (
                x,
                [r["seconds_per_epoch"] / first["seconds_per_epoch"] for _, r in pairs],
            ),
        }
        shown.append(Panel(title, lines, "n: epochs without an update", "relative to n = 0"))
    return shown


def _gradient_norms(panels: Panels) -> list[Panel]:
    return [
        Panel(
            title,
            {name: _traced(row, "gradient_norm") for name, row in _named(pairs)},
            "epoch",
            "norm of the batch gradient",
            yscale="log",
        )
        for title, pairs in panels.items()
    ]


def _losses(panels: Panels) -> list[Panel]:
    return [
        Panel(
            title,
            {name: _columns(row["losses"]) for name, row in _named(pairs)},
            "epoch",
            "mean training loss",
            yscale="log",
        )
        for title, pairs in panels.items()
    ]


def _false_negatives(panels: Panels) -> list[Panel]:
    """Draw the share of held-out facts in the cache and among the sampled; the variances."""
    shown = []
    for title, pairs in panels.items():
        lines: dict[str, Any] = {}
        for cell, row in pairs:
            for point in row.get("variance", [])[:1]:
                for name in (name for name in point if name != "epoch"):
                    y = [each[name] for each in row["variance"]]
                    lines[name] = ([each["epoch"] for each in row["variance"]], y)
            if "trace" in row:
                size = f"N1 = N2 = {cell.options['cache_size']}"
                lines[f"cache, {size}"] = _traced(row, "false_cached")
                lines[f"sampled, {size}"] = _traced(row, "false_sampled")
        y_name = "mean variance of scores" if title == "variance" else "share"
        shown.append(Panel(title, lines, "epoch", y_name))
    return shown


def _ccdf(panels: Panels) -> list[Panel]:
    """Draw one triple at several epochs, then all triples at the last; tails are replaced."""
    shown = []
    for pairs in panels.values():
        looks = [
            look
            for _, row in pairs
            for look in row.get("looks", [])
            if look["event"] == "gradients" and look["side"] == "tail"
        ]
        if not looks:
            continue
        one, last = looks[0]["triple"], max(look["epoch"] for look in looks)
        over = {f"epoch {k['epoch']}": _columns(k["ccdf"]) for k in looks if k["triple"] == one}
        final = [look for look in looks if look["epoch"] == last]
        each = {f"triple {n + 1}": _columns(look["ccdf"]) for n, look in enumerate(final)}
        for title, lines in (("one triple", over), (f"triples, epoch {last}", each)):
            shown.append(Panel(title, lines, "gradient norm x", "share ≥ x", yscale="log"))
    return shown


_BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncol": 2}
_WAYS: dict[str, Callable[[Panels], list[Panel]]] = {
    "curves": _curves,
    "sweep": _sweep,
    "relative": _relative,
    "gradient-norms": _gradient_norms,
    "losses": _losses,
    "false-negatives": _false_negatives,
    "ccdf": _ccdf,
}


def _traced(row: Row, counter: str) -> tuple[list[float], list[float]]:
    points = [line for line in row["trace"] if line[counter] is not None]
    return [line["epoch"] for line in points], [line[counter] for line in points]


def _columns(points: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    return [point[0] for point in points], [point[1] for point in points]


def _picture(path: Path, title: str, panels: Sequence[Panel]) -> Path:
    columns = min(4, len(panels)) if len(panels) % 4 == 0 else min(3, len(panels))
    height = -(-len(panels) // columns)
    most = max(len(panel.lines) for panel in panels)
    below = 0.22 * -(-most // 2) if most > _MOST_BESIDE else 0.0
    with figure(max(5.0, 3.6 * columns), (3.4 + below) * height + 0.6) as drawn:
        places = list(drawn.subplots(height, columns, squeeze=False).flat)
        for place, panel in zip(places, panels, strict=False):
            for number, (name, (x, y)) in enumerate(panel.lines.items()):
                every = max(1, len(x) // 8)
                place.plot(x, y, label=name, markevery=every, **line_look(number))
            scaled = {k: v for k, v in panel.axes.items() if isinstance(v, str)}
            place.set(title=panel.title, xlabel=panel.x, ylabel=panel.y, **scaled)
            if "xscale" in panel.axes:
                kind, details = panel.axes["xscale"]
                place.set_xscale(kind, **details)
            if panel.lines:
                where = {} if len(panel.lines) <= _MOST_BESIDE else _BELOW
                place.legend(fontsize="x-small", handlelength=3.5, **where)
        for place in places[len(panels) :]:
            place.set_axis_off()
        drawn.suptitle(title, x=0.01, ha="left")
        save(drawn, path)
    return path
