"""HTML: elements that escape what they are given, numbers as a reader likes them, whole pages.

A page is one file that needs no network, with its style and script inside. On every page stand the
commands that repeat what it shows, and the versions it ran on.
"""

from __future__ import annotations

import dataclasses
import html
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, TypeVar

from nscaching._version import __version__
from nscaching.options import Options
from nscaching.runs.checks import versions

T = TypeVar("T")
#: Elements that have no content and no end.
_EMPTY = {"circle", "input", "line", "path", "rect"}


class Html(str):
    """Text that is HTML, as opposed to text that must be escaped first."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return a value as HTML; only :class:`Html` passes as it is."""
    return value if isinstance(value, Html) else Html(html.escape(str(value), quote=True))


def breakable(name: str) -> Html:
    """Return a name that may be parted where it has a mark between words."""
    return Html(re.sub(r"([_/.|:]+)(?=\w)", r"\1<wbr>", text(name)))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """Return an element. ``class_`` is class, ``data_x`` is data-x; None omits one."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY:
        return Html(f"<{name}{given}/>")
    return Html(f"<{name}{given}>{''.join(map(text, children))}</{name}>")


def join(parts: Sequence[object], between: str = "") -> Html:
    """Return parts one after another."""
    return Html(text(between).join(map(text, parts)))


def table(
    caption: object,
    rows: Sequence[Mapping[str, object]],
    *,
    names: Collection[str] = (),
    minor: Collection[str] = (),
    chosen: int | None = None,
) -> Html:
    """Return a table of cells by title; the first cell of a row is its head, ``chosen`` stands out.

    Cells are numbers, but for the first column and ``names``; ``minor`` ones are hidden on a narrow
    screen.
    """
    titles = list(rows[0]) if rows else []
    kinds = {
        title: ("name" if title in (titles[0], *names) else "number")
        + (" minor" if title in minor else "")
        for title in titles
    }
    heads = [tag("th", title, scope="col", class_=kind) for title, kind in kinds.items()]
    lines = []
    for number, row in enumerate(rows):
        first, *others = ((row[title], kind) for title, kind in kinds.items())
        cells = [tag("th", first[0], class_=first[1], scope="row")]
        cells += [tag("td", cell, class_=kind) for cell, kind in others]
        lines.append(tag("tr", *cells, class_="chosen" if number == chosen else None))
    made = tag(
        "table", tag("caption", caption), tag("thead", tag("tr", *heads)), tag("tbody", *lines)
    )
    return tag("div", made, class_="scroll")


def paragraph(*parts: object) -> Html:
    """Return a paragraph."""
    return tag("p", *parts)


def note(*parts: object) -> Html:
    """Return a paragraph of small print."""
    return tag("p", *parts, class_="quiet")


def facts(pairs: Iterable[tuple[str, object]]) -> Html:
    """Return names and values, one pair below the other."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))


def tiles(items: Iterable[tuple[str, str, str]]) -> Html:
    """Return the few numbers that matter most, large: a name, the number, a remark or ''."""
    made = (
        tag("div", tag("dt", name), tag("dd", value, tag("small", remark) if remark else ""))
        for name, value, remark in items
    )
    return tag("dl", *made, class_="tiles")


def command(line: str) -> Html:
    """Return a command to copy."""
    button = tag("button", "Copy", type="button", class_="copy")
    words = join([tag("span", word) for word in line.split(" ")], " ")  # not parted at hyphens
    return tag("div", tag("pre", tag("code", words)), button, class_="command")


def bar(share: float, shown: str) -> Html:
    """Return a number with a bar before it; ``share`` is between 0 and 1."""
    width = f"--share: {max(0.0, min(1.0, share)):.3f}"
    return tag("span", tag("i", style=width, aria_hidden="true"), shown, class_="bar")


def asset(name: str) -> str:
    """Return a file of ``assets/`` as text."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def share(value: float | None) -> str:
    """Return a metric between 0 and 1."""
    return "–" if value is None or value != value else f"{value:.3f}"


def rank(value: float | None) -> str:
    """Return a mean rank."""
    if value is None or value != value:
        return "–"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def percent(value: float) -> str:
    """Return a share in percent, small ones with more digits."""
    if value == 0:
        return "0 %"
    digits = 1 if value >= 0.01 else 2 if value >= 0.001 else 4
    return f"{100 * value:.{digits}f} %"


def short(value: Any) -> str:
    """Return the value of an option."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def ticks(low: float, high: float, about: int = 5, whole: bool = False) -> list[float]:
    """Return round numbers that cover a range, the outer ones at or beyond its ends."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / max(1, about - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * by for by in (1, 2, 2.5, 5, 10) if size * by >= rough * 0.999)
    if whole:
        step = max(1.0, float(round(step)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * place, 12) for place in range(first, last + 1)]


def tick_text(value: float, step: float) -> str:
    """Return a tick with the digits that its step needs."""
    digits = next((n for n in range(9) if math.isclose(round(step, n), step, rel_tol=1e-6)), 9)
    return f"{value:,.{digits}f}"


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten that cover a range above 0; over few decades also 2 and 5 of each."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    if last - first <= 1:
        found = [float(f"{by}e{first}") for by in (1, 2, 5, 10)]
        below = [tick for tick in found if tick <= low * (1 + 1e-9)]
        return [tick for tick in found if tick >= below[-1]] or found
    step = -(-(last - first) // 5)  # six ticks at most
    return [float(f"1e{power}") for power in range(first, last + step, step)]


def thinned(points: Sequence[T], most: int) -> list[T]:
    """Return at most so many of the points, evenly, with the first and the last."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(place * last / (most - 1))] for place in range(most)]


# Pages --------------------------------------------------------------------------------------------

#: Name of the page in the folder of a run, a comparison or a search.
FILE_NAME = "report.html"


@dataclass(frozen=True)
class Section:
    """A part of a page that the list of contents leads to."""

    name: str
    title: str
    content: Iterable[Html]


def render(title: str, lead: str, head: Html, sections: Sequence[Section]) -> str:
    """Return the whole page: ``lead`` is the sentence below the title, ``head`` follows it."""
    now = datetime.now()
    contents = [tag("a", part.title, href=f"#{part.name}") for part in sections]
    body = [tag("section", tag("h2", part.title), *part.content, id=part.name) for part in sections]
    return Template(asset("page.html")).substitute(
        title=text(title),
        lead=text(lead),
        style=asset("style.css"),
        script=asset("script.js"),
        head=head,
        contents="".join(contents),
        body="\n".join(body),
        version=text(__version__),
        written=f"{now.day} {now:%B %Y, %H:%M}",
    )


def try_to_write(
    make: Callable[[], Path], say: Callable[[str], object], what: str = "report"
) -> Path | None:
    """Write a page, or say why not: what was computed is not lost because its page is."""
    try:
        return make()
    except Exception as error:
        say(f"No {what}: {str(error) or type(error).__name__}")
        return None


def command_line(
    verb: str,
    given: Mapping[str, Any],
    options: Sequence[type[Options]],
    own: Mapping[str, str] | None = None,
) -> str:
    """Return a command with a flag for each of the options that differs from its default.

    ``own`` are flags of the command itself.
    """
    words = ["nscaching", *verb.split(), *([str(given["data"])] if given.get("data") else [])]
    for name, value in (own or {}).items():
        words += [f"--{name}", value]
    for kind in options:
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]
            if field.name != "data":
                words += _flag(field.name, given.get(field.name, field.default), field.default)
    return shlex.join(words)


def _flag(name: str, value: Any, default: Any) -> list[str]:
    several = isinstance(value, list | tuple)
    if value is None or (list(value) == list(default or ()) if several else value == default):
        return []
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [word for each in (value if several else [value]) for word in (f"--{flag}", str(each))]


def repeating(*lines: str) -> list[Html]:
    """Return the section about it: commands that do the same, and what they were run with."""
    there = {name: version for name, version in versions().items() if version is not None}
    system = there.pop("system")
    listed = ", ".join(f"{name} {version}" for name, version in there.items())
    said = f"Versions when this page was written: {listed}; {system}."
    return [*map(command, lines), note(said)]
