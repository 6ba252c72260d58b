"""Charts as files: SVG that stands alone, in light and dark, with its colours inside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from nscaching.artefacts.files import write_text
from nscaching.errors import UserError
from nscaching.report.charts import STYLES, Picture, Scatter, shortened
from nscaching.report.markup import Html, asset, tag

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
    path: str | Path, pictures: Sequence[Picture], *, title: str = "", columns: int = 2
) -> Path:
    """Write pictures side by side into one file."""
    path = Path(path)
    if path.suffix.lower() != ".svg":
        raise UserError(f"Pictures are written as SVG: end {path.name} in .svg.")
    write_text(path, svg(pictures, title=title, columns=columns))
    return path


def svg(pictures: Sequence[Picture], *, title: str = "", columns: int = 2) -> Html:
    """Return the file as text."""
    shown = [picture for picture in pictures if picture.parts()]
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
    items, swatch = picture.legend(), 18 if isinstance(picture, Scatter) else 38
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
