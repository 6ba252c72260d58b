"""The page and the picture of a comparison: who did best under one budget, and how."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nscaching.models import SCORING
from nscaching.report.charts import Chart, Series, row
from nscaching.report.markup import Column, Html, bar, command, facts, paragraph, table, tag, tiles
from nscaching.report.numbers import count, plural, share, short
from nscaching.report.page import FILE_NAME, Section, command_line, render, repeating, write
from nscaching.report.pictures import write_svg
from nscaching.training import TrainConfig

if TYPE_CHECKING:
    from nscaching.experiments.compare import Comparison

METRICS = {"mrr": "MRR on valid", "hits@10": "Hits@10 on valid"}
AXES = {"seconds": "seconds of training", "epochs": "epochs"}
_COLUMNS = (
    Column("sampler", "text"),
    Column("MRR"),
    Column("95 % interval", minor=True),
    Column("to the best", minor=True),
    Column("Hits@10"),
    Column("accuracy", minor=True),
    Column("per epoch"),
    Column("extra parameters", minor=True),
    Column("best epoch", minor=True),
)


@dataclass(frozen=True)
class Band:
    """Several runs as one line: the mean, and the lowest and highest. Shapes: (n,)."""

    label: str
    epochs: np.ndarray
    seconds: np.ndarray
    mean: dict[str, np.ndarray]  #: by metric, ``mrr`` and ``hits@10``
    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]


def draw_comparison(path: Path, title: str, bands: Sequence[Band]) -> Path:
    """Write the charts of a comparison into an SVG file."""
    return write_svg(path, comparison_charts(bands), title=title)


def write_comparison_page(comparison: Comparison, bands: Sequence[Band]) -> Path:
    """Write the page into the folder of a comparison."""
    return write(comparison.out / FILE_NAME, comparison_page(comparison, bands))


def comparison_page(comparison: Comparison, bands: Sequence[Band]) -> str:
    """Return the page of a comparison as HTML; ``bands`` are the validations of its runs."""
    rows = sorted(comparison.rows, key=lambda each: -(each["mrr"] or 0.0))
    sections = [
        Section("result", "The result", _result(comparison, rows)),
        Section("curves", "How each got there", _curves(bands)),
        Section("same", "What was the same for all", [_options(comparison)]),
        Section("repeat", "Repeat it", _repeat(comparison)),
    ]
    data = Path(comparison.data).name if comparison.data else "a graph"
    title = f"{plural(len(rows), 'sampler')} compared on {data}"
    runs = plural(sum(row["runs"] for row in rows), "finished run")
    lead = (
        f"{runs} of {SCORING[comparison.scoring].__name__}, all with the same options and the same "
        "budget. Every number is of test, with the model that did best on valid."
    )
    return render(title, lead, _headline(rows), sections)


def _headline(rows: Sequence[dict[str, Any]]) -> Html:
    """Return who is best at what."""
    titles = {"mrr": "Best MRR", "hits@10": "Best Hits@10", "accuracy": "Best accuracy"}
    items = []
    for name, title in titles.items():
        if there := [each for each in rows if each[name] is not None]:
            best = max(there, key=lambda each: each[name])
            items.append((title, share(best[name]), best["sampler"]))
    if there := [each for each in rows if each["seconds_per_epoch"] is not None]:
        fastest = min(there, key=lambda each: each["seconds_per_epoch"])
        seconds = _seconds(fastest["seconds_per_epoch"])
        items.append(("Fastest epoch", seconds, fastest["sampler"]))
    return tiles(items)


def _result(comparison: Comparison, rows: Sequence[dict[str, Any]]) -> list[Html]:
    lines: list[list[object]] = []
    for each in rows:
        if not each["runs"]:
            lines.append([each["sampler"], "failed", *["–"] * (len(_COLUMNS) - 2)])
            continue
        lines.append(
            [
                each["sampler"],
                bar(each["mrr"] or 0.0, _mean(each, "mrr")),
                *_intervals(each),
                _mean(each, "hits@10"),
                _mean(each, "accuracy"),
                _seconds(each["seconds_per_epoch"]),
                count(each["extra_parameters"]),
                ", ".join(map(str, each["best_epoch"])),
            ]
        )
    done = any(each["mrr"] is not None for each in rows)
    parts = [table("On test, the best first", _COLUMNS, lines, chosen=0 if done else None)]
    if len(comparison.seeds) > 1:
        seeds = ", ".join(map(str, comparison.seeds))
        parts.append(paragraph(f"Mean ± standard deviation over seeds {seeds}.", class_="quiet"))
    parts.append(
        paragraph(
            "Accuracy is that of triplet classification; extra parameters are those trained "
            "besides the model; the best epoch is that of the model that was kept.",
            class_="quiet",
        )
    )
    parts += [paragraph(remark) for remark in comparison.remarks]
    failed = [f"{each['sampler']}, {error}" for each in rows for error in each["errors"]]
    return [*parts, *(paragraph(tag("b", "Failed: "), reason) for reason in failed)]


def _intervals(each: dict[str, Any]) -> list[str]:
    """Return the interval of the MRR over test facts, and the difference to the best sampler."""
    if each["mrr_interval"] is None:
        return ["–", "–"]
    low, high = each["mrr_interval"]
    difference = each["difference"]
    if difference is None:
        told = "best"
    else:
        told = "within noise" if difference["within_noise"] else f"{difference['mrr']:+.3f}"
    return [f"{share(low)} to {share(high)}", told]


def _curves(bands: Sequence[Band]) -> list[Html]:
    if not bands:
        return [paragraph("No run validated, so there are no curves.")]
    return [tag("div", row(comparison_charts(bands)), class_="large")]


def comparison_charts(bands: Sequence[Band]) -> list[Chart]:
    """Return each metric against seconds and against epochs."""
    return [
        Chart(
            f"{name}, against {axis_name}",
            [_series(band, axis, metric) for band in bands],
            x_name=axis_name,
            whole=axis == "epochs",
        )
        for metric, name in METRICS.items()
        for axis, axis_name in AXES.items()
    ]


def _series(band: Band, axis: str, metric: str) -> Series:
    parts = (band.mean[metric], band.low[metric], band.high[metric])
    return Series(band.label, getattr(band, axis).tolist(), *(part.tolist() for part in parts))


def _options(comparison: Comparison) -> Html:
    given = {name: value for name, value in comparison.options.items() if value is not None}
    pairs = [(name.replace("_", " "), short(value)) for name, value in given.items()]
    first = [("data", comparison.data or "–"), ("scoring", comparison.scoring)]
    return facts([*first, *(pair for pair in pairs if pair[0] != "scoring")])


def _repeat(comparison: Comparison) -> list[Html]:
    if comparison.data is None:
        return [paragraph("The graph was made in Python; call nscaching.compare with it again.")]
    given = {**comparison.options, "scoring": comparison.scoring, "data": comparison.data}
    own = {"samplers": ",".join(comparison.samplers), "seeds": ",".join(map(str, comparison.seeds))}
    one = next((run.run for run in comparison.runs if run.error is None), None)
    parts = repeating(command_line("compare", given, [TrainConfig], own))
    if one is not None:
        line = shlex.join(["nscaching", "report", str(comparison.out / one)])
        parts += [paragraph("Every run has a folder of its own; this writes the page of one:")]
        parts += [command(line)]
    return parts


def _mean(each: dict[str, Any], name: str) -> str:
    spread = each[f"{name}_spread"]
    return share(each[name]) if spread is None else f"{share(each[name])} ± {share(spread)}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"
