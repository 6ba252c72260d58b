"""Numbers as a reader likes them, the ticks of an axis, and some of many points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def share(value: float | None) -> str:
    """Return a metric between 0 and 1."""
    return "–" if value is None or value != value else f"{value:.3f}"


def rank(value: float | None) -> str:
    """Return a mean rank."""
    if value is None or value != value:
        return "–"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def count(value: int) -> str:
    """Return how many."""
    return f"{value:,}"


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


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


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


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return powers of ten that cover a range above 0; over few decades also 2 and 5 of each."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    if last - first <= 1:
        found = [float(f"{by}e{first}") for by in (1, 2, 5, 10)]
        below = [tick for tick in found if tick <= low * (1 + 1e-9)]
        return [tick for tick in found if tick >= below[-1]] or found
    step = -(-(last - first) // (most - 1))
    return [float(f"1e{power}") for power in range(first, last + step, step)]


def thinned(points: Sequence[T], most: int) -> list[T]:
    """Return at most so many of the points, evenly, with the first and the last."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(place * last / (most - 1))] for place in range(most)]
