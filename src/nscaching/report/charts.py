"""Line charts as inline SVG: they follow light and dark by CSS, and show values on hover.

A chart is drawn for a width of some 360 pixels and shown at about that width, in as many columns as
there is room for, so that its letters are as large on a phone as on a desk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nscaching.report.marks import LOOKS, marks
from nscaching.report.markup import Html, breakable, tag
from nscaching.report.numbers import share, tick_text, ticks
from nscaching.report.thinning import thinned

WIDTH, HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 12, 10, 38
#: Points of a line that are drawn, and marks on it.
_MOST_POINTS, _MOST_MARKS = 240, 20


@dataclass(frozen=True)
class Series:
    """A line; with ``low`` and ``high``, a band around it."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = field(default=())
    high: Sequence[float] = field(default=())


@dataclass(frozen=True)
class Chart:
    """What is drawn; ``say`` writes a value of y for the person who points at it."""

    title: str
    series: Sequence[Series]
    x_name: str = "epoch"
    say: Callable[[float], str] = share
    whole: bool = True  #: x counts something
    steps: bool = False  #: y stays until the next point
    percent: bool = False  #: y is a share, written in percent
    zero: bool = True  #: y begins at zero
    also: Sequence[float] = ()  #: values of y that must be in its range
    x_numbers: bool = True  #: whether x has numbers


def draw(chart: Chart) -> Html:
    """Return the chart as a figure, with a legend where it has several lines."""
    lines = [line for line in chart.series if len(line.x)]
    if not lines:
        return Html("")
    plot = _Plot(chart, lines)
    parts = [*plot.axes()]
    for look, line in enumerate(lines):
        parts += plot.line(look % LOOKS, line)
    parts.append(tag("g", class_="pointer"))
    label = f"{chart.title}; {_summary(chart, lines)}"
    svg = tag(
        "svg",
        *parts,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=label,
        data_points=json.dumps([plot.spoken(line) for line in lines], separators=(",", ":")),
    )
    return tag("figure", tag("figcaption", chart.title), svg, _legend(lines), class_="chart")


def row(charts: Sequence[Chart]) -> Html:
    """Return charts side by side, as far as there is room."""
    return tag("div", *(draw(chart) for chart in charts), class_="charts")


class _Plot:
    """The scales of a chart and what they make of a line."""

    def __init__(self, chart: Chart, lines: Sequence[Series]) -> None:
        self.chart = chart
        xs = [x for line in lines for x in line.x]
        ys = [y for line in lines for y in (*line.y, *line.low, *line.high)]
        ys += chart.also
        self.x_ticks = ticks(min(0, *xs), max(xs), 5, whole=chart.whole)
        self.y_ticks = ticks(min(0.0, *ys) if chart.zero else min(ys), max(ys), 5)
        # The axis ends with the data; a tick beyond it would leave an empty strip.
        self.x_low, self.x_high = self.x_ticks[0], max(max(xs), self.x_ticks[0] + 1e-9)
        self.x_ticks = [tick for tick in self.x_ticks if tick <= self.x_high * (1 + 1e-9)]
        self.y_low, self.y_high = self.y_ticks[0], self.y_ticks[-1]

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is drawn."""
        across = (x - self.x_low) / (self.x_high - self.x_low)
        up = (y - self.y_low) / (self.y_high - self.y_low)
        return (
            round(_LEFT + across * (WIDTH - _LEFT - _RIGHT), 1),
            round(HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM), 1),
        )

    def axes(self) -> list[Html]:
        """Return the grid and its numbers."""
        parts = []
        for tick in self.y_ticks:
            _, y = self.at(self.x_low, tick)
            parts.append(tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
            parts.append(tag("text", self._y_text(tick), x=_LEFT - 7, y=y + 4, text_anchor="end"))
        step = self.x_ticks[1] - self.x_ticks[0] if len(self.x_ticks) > 1 else 1.0
        for tick in self.x_ticks if self.chart.x_numbers else ():
            x, _ = self.at(tick, self.y_low)
            said = tick_text(tick, step)
            parts.append(tag("text", said, x=x, y=HEIGHT - _BOTTOM + 16, text_anchor="middle"))
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        name = tag("text", self.chart.x_name, x=middle, y=HEIGHT - 4, text_anchor="middle")
        return [*parts, name]

    def _y_text(self, tick: float) -> str:
        step = self.y_ticks[1] - self.y_ticks[0]
        if self.chart.percent:
            return f"{tick_text(100 * tick, 100 * step)} %"
        return tick_text(tick, step)

    def line(self, look: int, line: Series) -> list[Html]:
        """Return the band, the line and its marks."""
        points = [self.at(x, y) for x, y in self._kept(line)]
        parts = []
        if len(line.low) and any(a != b for a, b in zip(line.low, line.high, strict=True)):
            there = [self.at(x, y) for x, y in zip(line.x, line.high, strict=True)]
            back = [self.at(x, y) for x, y in zip(line.x, line.low, strict=True)]
            parts.append(tag("path", d=_path(there + back[::-1]) + "z", class_=f"band s{look}"))
        path = _steps(points) if self.chart.steps else _path(points)
        parts.append(tag("path", d=path, class_=f"line s{look}"))
        some = points[:: -(-len(points) // _MOST_MARKS)]  # evenly apart
        parts.append(tag("path", d=marks(look, some, 3), class_=f"mark s{look}"))
        return parts

    def spoken(self, line: Series) -> dict[str, object]:
        """Return what the script shows of a line: places, and the words for each."""
        kept = self._kept(line)
        return {
            "label": line.label,
            "at": [self.at(x, y) for x, y in kept],
            "x": [self._x_text(x) for x, _ in kept],
            "y": [self.chart.say(y) for _, y in kept],
        }

    def _x_text(self, x: float) -> str:
        return f"{self.chart.x_name} {_plain(x)}" if self.chart.x_numbers else self.chart.x_name

    @staticmethod
    def _kept(line: Series) -> list[tuple[float, float]]:
        return thinned(list(zip(line.x, line.y, strict=True)), _MOST_POINTS)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x} {y}" for x, y in points)


def _steps(points: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = points
    return f"M{x} {y}" + "".join(f"H{x}V{y}" for x, y in rest)


def _legend(lines: Sequence[Series]) -> Html:
    if len(lines) == 1:
        return Html("")
    return tag(
        "ul",
        *(tag("li", swatch(n), tag("span", breakable(line.label))) for n, line in enumerate(lines)),
    )


def swatch(look: int) -> Html:
    """Return a small piece of a line for a legend."""
    look %= LOOKS
    parts = [
        tag("path", d="M1 6H31", class_=f"line s{look}"),
        tag("path", d=marks(look, [(16, 6)], 3), class_=f"mark s{look}"),
    ]
    return tag("svg", *parts, viewBox="0 0 32 12", class_="swatch", aria_hidden="true")


def _summary(chart: Chart, lines: Sequence[Series]) -> str:
    ends = (
        f"{line.label} from {chart.say(line.y[0])} to {chart.say(line.y[-1])}" for line in lines
    )
    return ", ".join(ends)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
