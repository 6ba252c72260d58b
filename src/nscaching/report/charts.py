"""All pictures of the package, as SVG: line charts, bars and points, in pages and as files.

A chart is drawn for a width of some 360 pixels. In a page it follows light and dark by CSS, shows
values on hover, and its letters are as large on a phone as on a desk. :func:`write_svg` writes
charts side by side into a file that stands alone, with its colours inside.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from nscaching.report.markup import (
    Html,
    breakable,
    log_ticks,
    share,
    tag,
    thinned,
    tick_text,
    ticks,
)

WIDTH, HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 12, 10, 38
#: Points of a line that are drawn, and marks on it.
_MOST_POINTS, _MOST_MARKS = 240, 20
#: Styles in style.css: ``s0`` to ``s7``, each with a colour, and dashes for lines.
STYLES = 8
#: Percent of points at each end that do not set the scale, and how far beyond it they may be.
_OUTLIERS, _BEYOND, _EDGE = 0.5, 0.12, 24

Scale = Literal["linear", "log", "symlog"]
Points = Sequence[tuple[float, float]]


class Picture:
    """What can be put into a page or a file."""

    title: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return WIDTH, HEIGHT

    def parts(self) -> Iterator[Html]:
        """Return the elements that are drawn, within ``size``."""
        raise NotImplementedError

    def legend(self) -> Iterable[tuple[Html, str]]:
        """Return swatches (32 x 12) with their labels; none where nothing needs telling apart."""
        return ()


@dataclass(frozen=True)
class Series:
    """A line; with ``low`` and ``high``, a band around it."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = field(default=())
    high: Sequence[float] = field(default=())


@dataclass(frozen=True)
class Chart(Picture):
    """Lines over two axes; ``say`` writes a value of y for the person who points at it."""

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
    marks: bool = True  #: whether points have marks
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"

    def lines(self) -> list[Series]:
        """Return the lines that have points which can be drawn."""
        lines = list(self.series)
        if "log" in (self.x_scale, self.y_scale):  # such an axis has no zero
            lines = [self._above_zero(line) for line in lines]
        return [line for line in lines if len(line.x)]

    def _above_zero(self, line: Series) -> Series:
        kept = [
            (x, y)
            for x, y in zip(line.x, line.y, strict=True)
            if (x > 0 or self.x_scale != "log") and (y > 0 or self.y_scale != "log")
        ]
        return replace(line, x=[x for x, _ in kept], y=[y for _, y in kept], low=(), high=())

    def parts(self) -> Iterator[Html]:
        """Return axes and lines."""
        if lines := self.lines():
            plot = _Plot(self, lines)
            yield from plot.axes()
            for at, line in enumerate(lines):
                yield from plot.line(at % STYLES, line)

    def legend(self) -> Iterable[tuple[Html, str]]:
        """Return the lines, where there are several."""
        lines = self.lines()
        for at, line in enumerate(lines if len(lines) > 1 else []):
            style = at % STYLES
            swatch = tag("path", d="M1 6H31", class_=f"line s{style}")
            if self.marks:
                mark = tag("path", d=marks(style, [(16, 6)], 3), class_=f"mark s{style}")
                swatch = Html(swatch + mark)
            yield swatch, line.label


@dataclass(frozen=True)
class Bars(Picture):
    """Numbers as bars, one below the other: label, value, the value in words."""

    title: str
    rows: Sequence[tuple[str, float, str]]
    log: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return WIDTH, 10 + 22 * len(self.rows)

    def parts(self) -> Iterator[Html]:
        """Return labels, bars and numbers."""
        values = [value for _, value, _ in self.rows]
        least, most = min(values) / 2 if self.log else 0.0, max([*values, 1e-12])
        for place, (label, value, said) in enumerate(self.rows):
            length = value / most
            if self.log:
                length = math.log(value / least) / math.log(most / least)
            y, long = 8 + 22 * place, round(150 * length, 1)
            yield tag("text", shortened(label, 130), x=126, y=y + 11, text_anchor="end")
            yield tag("rect", x=134, y=y, width=max(long, 1), height=14, class_="bars s2")
            yield tag("text", said, x=140 + long, y=y + 11)


@dataclass(frozen=True)
class Scatter(Picture):
    """Points by group."""

    title: str
    points: np.ndarray  #: shape: (n, 2)
    group: np.ndarray  #: (n,) index of ``groups``
    groups: Sequence[str]
    size: tuple[int, int] = (960, 600)
    radius: float = 2.4

    def places(self) -> np.ndarray:
        """Scale points to the picture; the few that lie far out are kept at its edge."""
        points, (width, height) = self.points, self.size
        low, high = np.percentile(points, [_OUTLIERS, 100 - _OUTLIERS], axis=0)
        room = _BEYOND * (high - low)
        low, high = np.maximum(low - room, points.min(0)), np.minimum(high + room, points.max(0))
        inside = np.clip((points - low) / np.maximum(high - low, 1e-12), 0, 1)
        across = _EDGE + inside[:, 0] * (width - 2 * _EDGE)
        down = height - _EDGE - inside[:, 1] * (height - 2 * _EDGE)
        return np.column_stack([across, down]).round(1)

    def parts(self) -> Iterator[Html]:
        """Return one path per group."""
        places = self.places()
        for number in range(len(self.groups)):
            drawn = marks(number, places[self.group == number].tolist(), self.radius)
            yield tag("path", d=drawn, class_=f"dots s{number % STYLES}")

    def legend(self) -> Iterable[tuple[Html, str]]:
        """Return the groups."""
        return [
            (tag("path", d=marks(at, [(6, 6)], 4), class_=f"dots s{at % STYLES}"), name)
            for at, name in enumerate(self.groups)
        ]


# In a page ---------------------------------------------------------------------------------------


def draw(chart: Chart) -> Html:
    """Return the chart as a figure, with a legend where it has several lines."""
    lines = chart.lines()
    if not lines:
        return Html("")
    plot = _Plot(chart, lines)
    ends = (
        f"{line.label} from {chart.say(line.y[0])} to {chart.say(line.y[-1])}" for line in lines
    )
    svg = tag(
        "svg",
        *chart.parts(),
        tag("g", class_="pointer"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{chart.title}; {', '.join(ends)}",
        data_points=json.dumps([plot.spoken(line) for line in lines], separators=(",", ":")),
    )
    return tag("figure", tag("figcaption", chart.title), svg, html_legend(chart), class_="chart")


def row(charts: Iterable[Chart]) -> Html:
    """Return charts side by side, as far as there is room."""
    return tag("div", *(draw(chart) for chart in charts), class_="charts")


def html_legend(picture: Picture, width: int = 32) -> Html:
    """Return the legend as a list, or nothing."""
    items = [
        tag(
            "li",
            tag("svg", mark, viewBox=f"0 0 {width} 12", class_="swatch", aria_hidden="true"),
            tag("span", breakable(label)),
        )
        for mark, label in picture.legend()
    ]
    return tag("ul", *items) if items else Html("")


class _Plot:
    """The scales of a chart and what they make of a line."""

    def __init__(self, chart: Chart, lines: Sequence[Series]) -> None:
        self.chart = chart
        xs = [x for line in lines for x in line.x]
        ys = [y for line in lines for y in (*line.y, *line.low, *line.high)]
        ys += chart.also
        self._small = min((abs(x) for x in xs if x), default=1.0)
        if chart.x_scale == "linear":
            self.x_ticks = ticks(min(0, *xs), max(xs), 5, whole=chart.whole)
            # The axis ends with the data; a tick beyond it would leave an empty strip.
            self.x_low, self.x_high = self.x_ticks[0], max(max(xs), self.x_ticks[0] + 1e-9)
            self.x_ticks = [tick for tick in self.x_ticks if tick <= self.x_high * (1 + 1e-9)]
        else:
            self.x_ticks = log_ticks(self._small, max(xs))
            if min(xs) <= 0:
                self.x_ticks = [0.0, *self.x_ticks]
            self.x_low, self.x_high = min(self.x_ticks[0], *xs), max(self.x_ticks[-1], *xs)
        if chart.y_scale == "linear":
            self.y_ticks = ticks(min(0.0, *ys) if chart.zero else min(ys), max(ys), 5)
        else:
            self.y_ticks = log_ticks(min(ys), max(ys))
        self.y_low, self.y_high = min(self.y_ticks[0], *ys), max(self.y_ticks[-1], *ys)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is drawn."""
        across = self._share(x, self.x_low, self.x_high, self.chart.x_scale)
        up = self._share(y, self.y_low, self.y_high, self.chart.y_scale)
        return (
            round(_LEFT + across * (WIDTH - _LEFT - _RIGHT), 1),
            round(HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM), 1),
        )

    def _share(self, value: float, low: float, high: float, scale: Scale) -> float:
        """Return how far along an axis a value is, from 0 to 1."""
        if scale == "log":
            value, low, high = (math.log(each) for each in (value, low, high))
        elif scale == "symlog":  # even around zero, logarithmic beyond the smallest value
            value, low, high = (math.asinh(each / self._small) for each in (value, low, high))
        return (value - low) / ((high - low) or 1.0)

    def axes(self) -> Iterator[Html]:
        """Return the grid and its numbers."""
        for tick in self.y_ticks:
            _, y = self.at(self.x_low, tick)
            yield tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid")
            said = _tick_text(tick, self.y_ticks, self.chart.y_scale)
            if self.chart.percent:
                said = _tick_text(100 * tick, [100 * t for t in self.y_ticks], "linear") + " %"
            yield tag("text", said, x=_LEFT - 7, y=y + 4, text_anchor="end")
        for tick in self.x_ticks if self.chart.x_numbers else ():
            x, _ = self.at(tick, self.y_low)
            said = _tick_text(tick, self.x_ticks, self.chart.x_scale)
            yield tag("text", said, x=x, y=HEIGHT - _BOTTOM + 16, text_anchor="middle")
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        yield tag("text", self.chart.x_name, x=middle, y=HEIGHT - 4, text_anchor="middle")

    def line(self, style: int, line: Series) -> Iterator[Html]:
        """Return the band, the line and its marks."""
        points = [self.at(x, y) for x, y in _kept(line)]
        if len(line.low) and any(a != b for a, b in zip(line.low, line.high, strict=True)):
            there = [self.at(x, y) for x, y in zip(line.x, line.high, strict=True)]
            back = [self.at(x, y) for x, y in zip(line.x, line.low, strict=True)]
            yield tag("path", d=_path(there + back[::-1]) + "z", class_=f"band s{style}")
        path = _path(points)
        if self.chart.steps:
            path = _path(points[:1]) + "".join(f"H{x}V{y}" for x, y in points[1:])
        yield tag("path", d=path, class_=f"line s{style}")
        if self.chart.marks:
            some = points[:: -(-len(points) // _MOST_MARKS)]  # evenly apart
            yield tag("path", d=marks(style, some, 3), class_=f"mark s{style}")

    def spoken(self, line: Series) -> dict[str, object]:
        """Return what the script shows of a line: places, and the words for each."""
        kept, name = _kept(line), self.chart.x_name
        return {
            "label": line.label,
            "at": [self.at(x, y) for x, y in kept],
            "x": [f"{name} {_plain(x)}" if self.chart.x_numbers else name for x, _ in kept],
            "y": [self.chart.say(y) for _, y in kept],
        }


def _kept(line: Series) -> list[tuple[float, float]]:
    return thinned(list(zip(line.x, line.y, strict=True)), _MOST_POINTS)


def _path(points: Points) -> str:
    return "M" + "L".join(f"{x} {y}" for x, y in points)


def _tick_text(tick: float, of: Sequence[float], scale: Scale) -> str:
    if scale != "linear":
        return f"{tick / 1e6:g} M" if abs(tick) >= 1e6 else f"{tick:,g}"
    return tick_text(tick, of[1] - of[0] if len(of) > 1 else 1.0)


def _plain(value: float) -> str:
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


# Marks -------------------------------------------------------------------------------------------

#: Shapes that can be told apart without colour, for a radius of 1, from the point itself.
_SHAPES = (
    ((-1, 0), "a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z"),  # circle
    ((-1, -1), "h{d}v{d}h-{d}z"),  # square
    ((0, -1), "l{r} {d}h-{d}z"),  # triangle
    ((0, -1), "l{r} {r}l-{r} {r}l-{r} -{r}z"),  # diamond
    ((-1, -1), "h{d}l-{r} {d}z"),  # triangle upside down
    ((-0.5, -1), "h{r}v{d}h-{r}z"),  # bar
)


def marks(style: int, points: Points, radius: float) -> str:
    """Return one path with the mark of a style at every point."""
    (dx, dy), shape = _SHAPES[style % len(_SHAPES)]
    drawn = shape.format(r=f"{radius:.1f}", d=f"{2 * radius:.1f}")
    return "".join(f"M{x + dx * radius:.1f} {y + dy * radius:.1f}{drawn}" for x, y in points)


def shortened(label: str, width: float) -> str:
    """Return a label that fits into so many pixels."""
    most = max(3, int(width / 6.2))
    return label if len(label) <= most else f"{label[: most - 1]}…"
