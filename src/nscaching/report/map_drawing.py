"""The map of the entities as a figure: dots by role, names of the largest, the rest on hover."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from nscaching.report.entity_map import EntityMap
from nscaching.report.marks import marks
from nscaching.report.markup import Html, breakable, tag

WIDTH, HEIGHT, _EDGE = 960, 600, 24
#: Entities whose names stand on the map, where they do not cover each other; fewer on a phone.
_NAMED, _NAMED_ON_PHONE = 24, 6
_NAME_LENGTH = 26
#: Percent of the entities at each end that do not set the scale, and how far beyond it they may be.
_OUTLIERS, _BEYOND = 0.5, 0.12


def draw_map(found: EntityMap, entities: Sequence[str]) -> Html:
    """Return the figure."""
    places = _placed(found.places)
    names = [entities[number] for number in found.ids]
    parts = [
        tag("path", d=marks(look, places[found.role == look].tolist(), 2.4), class_=f"dots s{look}")
        for look in range(len(found.roles))
    ]
    parts += _labels(places, names)
    parts += [tag("g", class_="found"), tag("g", class_="pointer")]
    label = f"Map of {len(names)} entities in two dimensions"
    svg = tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)
    data = {
        "names": names,
        "at": places.tolist(),
        "roles": found.roles,
        "role": found.role.tolist(),
        "degree": found.degree.tolist(),
    }
    packed = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return tag("figure", _finder(), svg, _legend(found.roles), class_="map", data_points=packed)


def _placed(places: np.ndarray) -> np.ndarray:
    """Scale places to the figure; the few that lie far out are kept at its edge."""
    low, high = np.percentile(places, [_OUTLIERS, 100 - _OUTLIERS], axis=0)
    room = _BEYOND * (high - low)
    low, high = np.maximum(low - room, places.min(0)), np.minimum(high + room, places.max(0))
    inside = np.clip((places - low) / np.maximum(high - low, 1e-12), 0, 1)
    across = _EDGE + inside[:, 0] * (WIDTH - 2 * _EDGE)
    down = HEIGHT - _EDGE - inside[:, 1] * (HEIGHT - 2 * _EDGE)
    return np.column_stack([across, down]).round(1)


def _labels(places: np.ndarray, names: Sequence[str]) -> list[Html]:
    """Name the entities with the most facts, one after another, where there is room."""
    taken: list[tuple[float, float, float, float]] = []
    parts: list[Html] = []
    for (x, y), name in zip(places.tolist(), names, strict=True):
        if len(parts) == _NAMED:
            break
        short = name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…"
        on_phone = len(parts) < _NAMED_ON_PHONE  # twice as large there
        half = len(short) * (9.4 if on_phone else 3.7) + 4
        height = 34 if on_phone else 16
        middle = min(max(x, half + 4), WIDTH - half - 4)
        box = (middle - half, y - 6 - height, middle + half, y - 4)
        if box[1] < 0 or any(_overlap(box, other) for other in taken):
            continue
        taken.append(box)
        look = "label" if on_phone else "label second"
        parts.append(tag("text", short, x=middle, y=y - 7, text_anchor="middle", class_=look))
    return parts


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _legend(roles: Sequence[str]) -> Html:
    def dot(look: int) -> Html:
        mark = tag("path", d=marks(look, [(6, 6)], 4), class_=f"dots s{look}")
        return tag("svg", mark, viewBox="0 0 12 12", class_="swatch", aria_hidden="true")

    return tag(
        "ul",
        *(tag("li", dot(look), tag("span", breakable(role))) for look, role in enumerate(roles)),
    )


def _finder() -> Html:
    """Return the box that finds an entity by name; the script shows it."""
    box = tag("input", type="search", placeholder="part of a name", autocomplete="off")
    return tag("label", "Find", box, tag("output"), class_="find", hidden="hidden")
