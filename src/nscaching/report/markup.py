"""HTML made so that nothing can be forgotten: what is not :class:`Html` already is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

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


@dataclass(frozen=True)
class Column:
    """A column of a table; ``minor`` ones are hidden on a narrow screen."""

    title: str
    kind: Literal["number", "text"] = "number"
    minor: bool = False

    @property
    def classes(self) -> str:
        """Its CSS classes."""
        kind = "number" if self.kind == "number" else "name"
        return f"{kind} minor" if self.minor else kind


def table(
    caption: object,
    columns: Sequence[Column],
    rows: Sequence[Sequence[object]],
    chosen: int | None = None,
) -> Html:
    """Return a table with a caption; the first cell of a row is its head, ``chosen`` stands out."""
    heads = [tag("th", c.title, scope="col", class_=c.classes) for c in columns]
    lines = [
        tag(
            "tr",
            *(
                tag("td" if place else "th", cell, class_=c.classes, scope=None if place else "row")
                for place, (c, cell) in enumerate(zip(columns, row, strict=True))
            ),
            class_="chosen" if number == chosen else None,
        )
        for number, row in enumerate(rows)
    ]
    made = tag(
        "table", tag("caption", caption), tag("thead", tag("tr", *heads)), tag("tbody", *lines)
    )
    return tag("div", made, class_="scroll")


def paragraph(*parts: object, class_: str | None = None) -> Html:
    """Return a paragraph."""
    return tag("p", *parts, class_=class_)


def facts(pairs: Sequence[tuple[str, object]]) -> Html:
    """Return names and values, one pair below the other."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))


def tiles(items: Sequence[tuple[str, str, str]]) -> Html:
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
