"""Pictures of a trace: its counters over epochs, and the CCDF of gradient norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nscaching.report.charts import Chart, Series
from nscaching.report.numbers import percent, short
from nscaching.report.pictures import write_svg
from nscaching.training.tracing.gradients import GradientNorms

#: Title of a chart, and the counters in it with their labels.
_CHARTS: dict[str, dict[str, str]] = {
    "Negatives that have a loss": {"nonzero_loss": "share"},
    "Negatives seen before": {"repeated": "share"},
    "False negatives": {"false_cached": "in the cache", "false_sampled": "sampled"},
    "Recall of the hardest": {"recall": "share"},
    "Norm of the batch gradient": {"gradient_norm": "l2"},
}


def counter_charts(lines: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return the counters of a trace over epochs, those that it has."""
    epochs = [line for line in lines if line["event"] == "epoch"]
    charts = []
    for title, counters in _CHARTS.items():
        series = []
        for name, label in counters.items():
            there = [line for line in epochs if line.get(name) is not None]
            x, y = ([line[key] for line in there] for key in ("epoch", name))
            series.append(Series(label, x, y))
        shares = "gradient_norm" not in counters
        charts.append(Chart(title, series, say=percent if shares else short, percent=shares))
    return [chart for chart in charts if chart.lines()]


def draw_trace(lines: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Write the counters over epochs, and a chart for each side of each traced triple."""
    norms: dict[str, dict[str, Any]] = {}
    for line in lines:
        if line["event"] == "gradients":
            title = f"{line['triple']}, {line['side']} replaced"
            norms.setdefault(title, {})[f"epoch {line['epoch']}"] = zip(*line["ccdf"], strict=True)
    ccdfs = [ccdf_chart(title, curves) for title, curves in norms.items()]
    return write_svg(path, [*counter_charts(lines), *ccdfs])


def draw_ccdf(norms: Mapping[str, GradientNorms], path: str | Path) -> Path:
    """Write P(norm >= x) of some triples, or of one at several epochs, by label."""
    curves = {label: each.ccdf() for label, each in norms.items()}
    return write_svg(path, [ccdf_chart("", curves)])


def ccdf_chart(title: str, curves: Mapping[str, Any]) -> Chart:
    """Return the share of norms from x on, over x, one line per label."""
    series = []
    for label, (x, share) in curves.items():
        values, shares = list(x), list(share)
        # The share at x holds from the norm before it on, which is a step at that norm.
        series.append(Series(label, [0.0, *values[:-1]], shares))
    name = f"{title}: share with norm ≥ x" if title else "Share with norm ≥ x"
    form: dict[str, Any] = {"whole": False, "steps": True, "marks": False, "y_scale": "log"}
    return Chart(name, series, "gradient norm x", short, **form)
