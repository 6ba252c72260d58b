"""What every reader returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nscaching.graph.vocabulary import NamedTriples


@dataclass
class Reading:
    """Triples by name, their labels if there are any, and what to tell the user."""

    triples: NamedTriples
    labels: Any = None
    """An Arrow column of ``'1'`` and ``'-1'``, or None."""
    notes: list[str] = field(default_factory=list)
