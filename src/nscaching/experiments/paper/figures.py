"""Figures from rows: each way to draw turns the panels of a definition into charts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.experiments.paper.definitions import Cell, Definition
from nscaching.experiments.paper.results import Row, cell_of, is_smoke
from nscaching.experiments.tune.trials import CurvePoint
from nscaching.report.charts import Chart, Series
from nscaching.report.pictures import ccdf_chart, curves_chart, write_svg

#: A cell with its row; a panel is a list of them under a title.
Pair = tuple[Cell, Row]
Panels = dict[str, list[Pair]]
Points = tuple[Sequence[float], Sequence[float]]
Lines = Mapping[str, Points]
#: A first stretch that is so many times as slow as the others was spent compiling.
_COMPILING = 3


def draw(
    definition: Definition, cells: Iterable[Cell], rows: Iterable[Row], out: Path
) -> list[Path]:
    """Draw a figure from the rows there are; tables, and figures without rows, draw nothing.

    A picture of a smoke run has a name and a title of its own.
    """
    rows = list(rows)
    panels = panels_of(cells, rows)
    if definition.draw.endswith("-table") or not panels:
        return []
    smoke = any(is_smoke(row) for row in rows)
    stem = f"smoke-{definition.name}" if smoke else definition.name
    if definition.draw == "searches":
        return _searches(panels, stem, out)
    drawn = list(_WAYS[definition.draw](panels))
    title = f"Smoke run, no result: {definition.title}" if smoke else definition.title
    columns = 4 if len(drawn) % 4 == 0 else 3
    return [write_svg(out / f"{stem}.svg", drawn, title=title, columns=columns)] if drawn else []


def panels_of(cells: Iterable[Cell], rows: Iterable[Row]) -> Panels:
    """Bring cells and their rows together, by panel, or by data set and scoring function."""
    found = {cell_of(row).identity: row for row in rows if not row["error"]}
    panels: Panels = {}
    for cell in cells:
        row = found.get(cell.identity)
        if row is not None:
            title = cell.panel or f"{cell.dataset}, {cell.scoring}"
            panels.setdefault(title, []).append((cell, row))
    return panels


def _chart(title: str, lines: Lines, x: str, y: str, **axes: Any) -> Chart:
    series = [Series(name, *columns) for name, columns in lines.items()]
    return Chart(f"{title}: {y}", series, x, say=lambda value: f"{value:.4g}", whole=False, **axes)


def _searches(panels: Panels, stem: str, out: Path) -> list[Path]:
    """Draw SMAC and random search on the same axes, one picture per data set, over trials."""
    pictures = []
    for pairs in panels.values():
        curves = {
            cell.mode: [CurvePoint(**point) for point in row["search"]["curve"]]
            for cell, row in pairs
            if "search" in row
        }
        plain = [row for cell, row in pairs if cell.kind == "train"]
        reference = ("NSCaching as set", plain[0]["valid"]["mrr"]) if plain else None
        if curves:
            file = out / f"{stem}-{pairs[0][0].dataset}.svg"
            pictures.append(write_svg(file, [curves_chart(curves, reference=reference)]))
    return pictures


def _named(pairs: Sequence[Pair]) -> list[tuple[str, Row]]:
    """Return rows with what sets their cells apart; what all cells share goes without saying."""
    parts = [
        [*cell.label.split(", "), *([] if cell.seed == 0 else [f"seed {cell.seed}"])]
        for cell, _ in pairs
    ]
    shared = set.intersection(*map(set, parts)) if len(parts) > 1 else set()
    names = [", ".join(part for part in own if part not in shared) for own in parts]
    return [(name or cell.label, row) for name, (cell, row) in zip(names, pairs, strict=True)]


def _curves(panels: Panels) -> Iterator[Chart]:
    """Draw MRR above, Hits@10 below, each against seconds of training."""
    for measure, field in (("MRR on valid", "mrr"), ("Hits@10 on valid", "hits_at_10")):
        for title, pairs in panels.items():
            lines = {
                name: (_steady_seconds(row["curve"]), row["curve"][field])
                for name, row in _named(pairs)
            }
            yield _chart(title, lines, "seconds of training, not compiling", measure)


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


def _sweep(panels: Panels) -> Iterator[Chart]:
    """Draw test MRR against the option that names the panel, a line for each other value."""
    for option, pairs in panels.items():
        points: dict[str, list[tuple[float, float]]] = {}
        for cell, row in pairs:
            others = {k: v for k, v in cell.options.items() if k != option}
            name = ", ".join(f"{k} = {v}" for k, v in others.items())
            points.setdefault(name, []).append((cell.options[option], row["test"]["mrr"]))
        lines = {name: _columns(sorted(each)) for name, each in points.items()}
        name = f"impact of {option}"
        yield _chart(name, lines, option, "MRR on test", x_scale="symlog", zero=False)


def _relative(panels: Panels) -> Iterator[Chart]:
    """Draw MRR and time per epoch over n, as shares of those of n = 0."""
    for title, pairs in panels.items():
        first = next((row for cell, row in pairs if cell.options["lazy"] == 0), None)
        if first is None:
            continue
        x = [float(cell.options["lazy"]) for cell, _ in pairs]
        mrr = [row["test"]["mrr"] / first["test"]["mrr"] for _, row in pairs]
        seconds = [row["seconds_per_epoch"] / first["seconds_per_epoch"] for _, row in pairs]
        lines = {"MRR on test": (x, mrr), "time per epoch": (x, seconds)}
        yield _chart(title, lines, "n: epochs without an update", "relative to n = 0")


def _over_epochs(panels: Panels, points: Callable[[Row], Points], y: str) -> Iterator[Chart]:
    """Draw a line per run over epochs, on a logarithmic axis."""
    for title, pairs in panels.items():
        lines = {name: points(row) for name, row in _named(pairs)}
        yield _chart(title, lines, "epoch", y, y_scale="log")


def _false_negatives(panels: Panels) -> Iterator[Chart]:
    """Draw the share of held-out facts in the cache and among the sampled; the variances."""
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
        yield _chart(title, lines, "epoch", y_name)


def _ccdf(panels: Panels) -> Iterator[Chart]:
    """Draw one triple at several epochs, then all triples at the last; tails are replaced."""
    for pairs in panels.values():
        snapshots = [
            line
            for _, row in pairs
            for line in row.get("looks", [])
            if line["event"] == "gradients" and line["side"] == "tail"
        ]
        if not snapshots:
            continue
        one, last = snapshots[0]["triple"], max(line["epoch"] for line in snapshots)
        of_one = [line for line in snapshots if line["triple"] == one]
        over = {f"epoch {line['epoch']}": _columns(line["ccdf"]) for line in of_one}
        final = [line for line in snapshots if line["epoch"] == last]
        each = {f"triple {n + 1}": _columns(line["ccdf"]) for n, line in enumerate(final)}
        for title, lines in (("one triple", over), (f"triples, epoch {last}", each)):
            yield ccdf_chart(title, lines)


_WAYS: dict[str, Callable[[Panels], Iterator[Chart]]] = {
    "curves": _curves,
    "sweep": _sweep,
    "relative": _relative,
    "gradient-norms": lambda panels: _over_epochs(
        panels, lambda row: _traced(row, "gradient_norm"), "norm of the batch gradient"
    ),
    "losses": lambda panels: _over_epochs(
        panels, lambda row: _columns(row["losses"]), "mean training loss"
    ),
    "false-negatives": _false_negatives,
    "ccdf": _ccdf,
}


def _traced(row: Row, counter: str) -> Points:
    points = [line for line in row["trace"] if line[counter] is not None]
    return [line["epoch"] for line in points], [line[counter] for line in points]


def _columns(points: Sequence[Sequence[float]]) -> Points:
    return [point[0] for point in points], [point[1] for point in points]
