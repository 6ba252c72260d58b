"""Marks that differ in shape, so that lines and points can be told apart without colour."""

from __future__ import annotations

from collections.abc import Callable, Iterable

#: Looks there are in style.css: ``s0`` to ``s7``, each with a colour, and dashes for lines.
LOOKS = 8


def _circle(x: float, y: float, r: float) -> str:
    half = f"a{r:.1f} {r:.1f} 0 1 0"
    return f"M{x - r:.1f} {y:.1f}{half} {2 * r:.1f} 0{half} -{2 * r:.1f} 0z"


def _square(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y - r:.1f}h{2 * r:.1f}v{2 * r:.1f}h-{2 * r:.1f}z"


def _triangle(x: float, y: float, r: float) -> str:
    return f"M{x:.1f} {y - r:.1f}l{r:.1f} {2 * r:.1f}h-{2 * r:.1f}z"


def _diamond(x: float, y: float, r: float) -> str:
    return f"M{x:.1f} {y - r:.1f}l{r:.1f} {r:.1f}l-{r:.1f} {r:.1f}l-{r:.1f} -{r:.1f}z"


def _upside_down(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y - r:.1f}h{2 * r:.1f}l-{r:.1f} {2 * r:.1f}z"


def _bar(x: float, y: float, r: float) -> str:
    return f"M{x - r / 2:.1f} {y - r:.1f}h{r:.1f}v{2 * r:.1f}h-{r:.1f}z"


_SHAPES: tuple[Callable[[float, float, float], str], ...] = (
    _circle,
    _square,
    _triangle,
    _diamond,
    _upside_down,
    _bar,
)


def marks(look: int, points: Iterable[tuple[float, float]], radius: float) -> str:
    """Return one path with the mark of a look at every point."""
    shape = _SHAPES[look % len(_SHAPES)]
    return "".join(shape(x, y, radius) for x, y in points)
