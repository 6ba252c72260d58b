"""Some of many points, for tables and pictures that show no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def thinned(points: Sequence[T], most: int) -> list[T]:
    """Return at most so many of the points, evenly, with the first and the last."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(place * last / (most - 1))] for place in range(most)]
