"""The pictures of a search: how its best score rises, and which hyperparameters mattered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.report.charts import Bars, Chart, Picture, Series
from nscaching.report.numbers import share, short
from nscaching.report.pictures import write_svg

if TYPE_CHECKING:
    from nscaching.experiments.tune.result import CurvePoint, Importance, SearchResult

_AXES = {"epochs": "training epochs, all trials", "seconds": "training seconds, all trials"}


def draw(result: SearchResult) -> list[str]:
    """Write the pictures of a search into its folder."""
    folder, metric = result.folder.path, result.metric.name
    curves = {result.method: result.curve}
    drawn = [curves_picture(curves, folder / "curve.svg", metric=metric)]
    if result.importance is not None:
        path = folder / "importance.svg"
        drawn.append(importance_picture(result.importance, path, metric=metric))
    return [str(path) for path in drawn]


def curves_chart(
    curves: Mapping[str, Sequence[CurvePoint]],
    *,
    over: str = "trials",
    metric: str = "MRR",
    reference: tuple[str, float] | None = None,
) -> Chart:
    """Return the best trial (top1) and the mean of the best three (top3) of some searches.

    ``over`` is trials, epochs or seconds; ``reference`` a level to compare with.
    """
    lines, last = [], 1.0
    for name, curve in curves.items():
        for top in ("top1", "top3"):
            points = [point for point in curve if getattr(point, top) is not None]
            x = [float(getattr(point, over)) for point in points]
            last = max([last, *x])
            lines.append(Series(f"{name}, {top}", x, [getattr(point, top) for point in points]))
    if reference is not None:
        lines.append(Series(reference[0], [0.0, last], [reference[1]] * 2))
    title = f"{metric} on valid, against {over}"
    x_name = _AXES.get(over, over)
    return Chart(title, lines, x_name, whole=over != "seconds", steps=True, zero=False, marks=False)


def curves_picture(
    curves: Mapping[str, Sequence[CurvePoint]],
    path: Path,
    *,
    over: str = "trials",
    metric: str = "MRR",
    reference: tuple[str, float] | None = None,
) -> Path:
    """Write :func:`curves_chart` into a file."""
    return write_svg(path, [curves_chart(curves, over=over, metric=metric, reference=reference)])


def importance_picture(importance: Importance, path: Path, *, metric: str = "MRR") -> Path:
    """Write the share of each hyperparameter, and what each does to the score."""
    effects = importance.effects
    pictures: list[Picture] = [
        Bars(
            f"Share of the variance, {what}",
            [(each.name, getattr(each, what), share(getattr(each, what))) for each in effects],
        )
        for what in ("total", "alone")
    ]
    pictures += effect_charts(importance, metric)
    said = f"{importance.trials} trials; cross-validated R² {importance.fit:.2f}"
    return write_svg(path, pictures, title=said)


def effect_charts(importance: Importance, metric: str) -> list[Chart]:
    """Return the effect of each over its range, often logarithmic; all on one scale, to compare."""
    drawable = [each for each in importance.effects if len(each.score) > 1]
    scores = [score for each in drawable for score in each.score]
    charts = []
    for each in drawable:
        places = [place / (len(each.score) - 1) for place in range(len(each.score))]
        charts.append(
            Chart(
                f"Predicted {metric} over {each.name}",
                [Series(each.name, places, each.score)],
                x_name=f"from {short(each.values[0])} to {short(each.values[-1])}",
                x_numbers=False,
                whole=False,
                zero=False,
                also=(min(scores), max(scores)),
            )
        )
    return charts
