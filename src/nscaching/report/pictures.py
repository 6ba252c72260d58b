"""Charts as files: SVG that stands alone, in light and dark; those of a search and of a trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching.artefacts.files import write_text
from nscaching.errors import UserError
from nscaching.report.charts import STYLES, Bars, Chart, Picture, Scatter, Series, shortened
from nscaching.report.markup import Html, asset, percent, share, short, tag
from nscaching.training.tracing.gradients import GradientNorms

if TYPE_CHECKING:
    from nscaching.experiments.tune import SearchResult
    from nscaching.experiments.tune.optimiser import Importance
    from nscaching.experiments.tune.trials import CurvePoint

_GAP, _MARGIN, _CAPTION, _LEGEND_LINE = 28, 18, 26, 18
#: Rules of a picture; a name of style.css in braces stands for its colour.
_RULES = (
    "text {{ font: 12px system-ui, sans-serif; fill: {quiet} }}",
    "text.title {{ font-weight: 600; font-size: 13px; fill: {ink} }}",
    "text.heading {{ font-weight: 600; font-size: 16px; fill: {ink} }}",
    ".paper {{ fill: {paper} }}",
    ".grid {{ stroke: {grid} }}",
    ".line {{ fill: none; stroke-width: 1.8; stroke-linejoin: round }}",
    ".mark {{ fill: {paper}; stroke-width: 1.5 }}",
    ".band {{ fill-opacity: .12 }}",
    ".dots {{ fill-opacity: .75 }}",
)


def write_svg(
    path: str | Path, pictures: Iterable[Picture], *, title: str = "", columns: int = 2
) -> Path:
    """Write pictures side by side into one file."""
    path = Path(path)
    if path.suffix.lower() != ".svg":
        raise UserError(f"Pictures are written as SVG: end {path.name} in .svg.")
    return write_text(path, svg(pictures, title=title, columns=columns))


def svg(pictures: Iterable[Picture], *, title: str = "", columns: int = 2) -> Html:
    """Return the file as text."""
    shown = [picture for picture in pictures if any(picture.parts())]
    columns = max(1, min(columns, len(shown)))
    wide = max((picture.size[0] for picture in shown), default=320)
    width = 2 * _MARGIN + columns * wide + (columns - 1) * _GAP
    parts: list[Html] = []
    y = _MARGIN
    if title:
        heading = shortened(title, 0.75 * (width - 2 * _MARGIN))
        parts.append(tag("text", heading, x=_MARGIN, y=y + 14, class_="heading"))
        y += 34
    for start in range(0, len(shown), columns):
        line = [_panel(picture, wide) for picture in shown[start : start + columns]]
        for place, (drawn, _) in enumerate(line):
            x = _MARGIN + place * (wide + _GAP)
            parts.append(tag("g", *drawn, transform=f"translate({x} {y})"))
        y += max(height for _, height in line) + _GAP
    height = y - (_GAP if shown else 0) + _MARGIN
    ground = tag("rect", width=width, height=height, class_="paper")
    return tag(
        "svg",
        tag("title", title or ", ".join(picture.title for picture in shown)),
        Html(f"<style>{_style()}</style>"),
        ground,
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
    )


def _panel(picture: Picture, wide: int) -> tuple[list[Html], int]:
    """Return a picture with its title and its legend, and how high that is."""
    parts, top = [], 0
    if picture.title:
        parts.append(tag("text", shortened(picture.title, wide), x=0, y=12, class_="title"))
        top = _CAPTION
    parts.append(tag("g", *picture.parts(), transform=f"translate(0 {top})"))
    x, y = 0.0, top + picture.size[1] + 6
    items, swatch = list(picture.legend()), 18 if isinstance(picture, Scatter) else 38
    for mark, label in items:
        said = shortened(label, wide - 40)
        length = swatch + 6.4 * len(said) + 14
        if x and x + length > wide:
            x, y = 0.0, y + _LEGEND_LINE
        parts.append(tag("g", mark, transform=f"translate({x:.0f} {y})"))
        parts.append(tag("text", said, x=round(x + swatch), y=y + 10))
        x += length
    return parts, y + (_LEGEND_LINE if items else 0)


def _style() -> str:
    """Return the rules for light, and again for dark."""
    found = re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\)", asset("style.css"))
    light, dark = ({name: pair[at] for name, *pair in found} for at in (0, 1))
    dashes = dict(re.findall(r"\.(s\d) \{[^}]*--dash: ([\d ]+);", asset("style.css")))

    def rules(colours: dict[str, str]) -> str:
        lines = [rule.format(**colours) for rule in _RULES]
        for style in range(STYLES):
            colour, dash = colours[f"c{style}"], dashes.get(f"s{style}", "none")
            lines.append(f".line.s{style} {{ stroke: {colour}; stroke-dasharray: {dash} }}")
            lines.append(f".mark.s{style} {{ stroke: {colour} }}")
            lines += [f".{kind}.s{style} {{ fill: {colour} }}" for kind in ("band", "dots", "bars")]
        return "\n".join(lines)

    return f"{rules(light)}\n@media (prefers-color-scheme: dark) {{\n{rules(dark)}\n}}"


_AXES = {"epochs": "training epochs, all trials", "seconds": "training seconds, all trials"}


# A search ----------------------------------------------------------------------------------------


def draw_search(result: SearchResult) -> list[str]:
    """Write the pictures of a search into its folder."""
    folder, metric = result.folder.path, result.metric.name
    curves = {result.method: result.curve}
    drawn = [write_svg(folder / "curve.svg", [curves_chart(curves, metric=metric)])]
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


def effect_charts(importance: Importance, metric: str) -> Iterator[Chart]:
    """Return the effect of each over its range, often logarithmic; all on one scale, to compare."""
    drawable = [each for each in importance.effects if len(each.score) > 1]
    scores = [score for each in drawable for score in each.score]
    for each in drawable:
        places = [place / (len(each.score) - 1) for place in range(len(each.score))]
        yield Chart(
            f"Predicted {metric} over {each.name}",
            [Series(each.name, places, each.score)],
            x_name=f"from {short(each.values[0])} to {short(each.values[-1])}",
            x_numbers=False,
            whole=False,
            zero=False,
            also=(min(scores), max(scores)),
        )


# A trace -----------------------------------------------------------------------------------------

#: Title of a chart, and the counters in it with their labels.
_CHARTS: dict[str, dict[str, str]] = {
    "Negatives with non-zero loss": {"nonzero_loss": "share"},
    "Repeated negatives": {"repeated": "share"},
    "False negatives": {"false_cached": "in the cache", "false_sampled": "sampled"},
    "Recall of the hardest": {"recall": "share"},
    "Norm of the batch gradient": {"gradient_norm": "l2"},
}


def counter_charts(lines: Sequence[Mapping[str, Any]]) -> Iterator[Chart]:
    """Return the counters of a trace over epochs, those that it has."""
    epochs = [line for line in lines if line["event"] == "epoch"]
    for title, counters in _CHARTS.items():
        series = []
        for name, label in counters.items():
            there = [line for line in epochs if line.get(name) is not None]
            x, y = ([line[key] for line in there] for key in ("epoch", name))
            series.append(Series(label, x, y))
        shares = "gradient_norm" not in counters
        chart = Chart(title, series, say=percent if shares else short, percent=shares)
        if chart.lines():
            yield chart


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
    for label, (x, y) in curves.items():
        values, shares = list(x), list(y)
        # The share at x holds from the norm before it on, which is a step at that norm.
        series.append(Series(label, [0.0, *values[:-1]], shares))
    name = f"{title}: share with norm ≥ x" if title else "Share with norm ≥ x"
    form: dict[str, Any] = {"whole": False, "steps": True, "marks": False, "y_scale": "log"}
    return Chart(name, series, "gradient norm x", short, **form)
