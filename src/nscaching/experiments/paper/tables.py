"""Our numbers beside the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nscaching.experiments.paper.numbers import printed
from nscaching.experiments.paper.rows import Row, identity

#: Which numbers of the paper a definition is held against.
_PRINTED_IN = {
    "link-table": "link_prediction",
    "search-table": "link_prediction",
    "classification-table": "classification",
    "node-table": "nodes",
}


@dataclass(frozen=True)
class Beside:
    """One measure of one cell: what we found, what the paper prints."""

    measure: str
    ours: float
    spread: float | None  #: standard deviation over seeds
    paper: float | None

    @property
    def difference(self) -> float | None:
        """How much ours is above the paper's."""
        return None if self.paper is None else self.ours - self.paper

    @property
    def reached(self) -> bool:
        """Whether ours is at least the paper's, to the four digits that the paper prints."""
        return self.difference is not None and round(self.difference, 4) >= 0


def same_cell(rows: Iterable[Row]) -> list[list[Row]]:
    """Group rows that differ in their seed only, in order."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(identity({**row, "seed": 0}), []).append(row)
    return list(groups.values())


def beside(draw: str, seeds: Sequence[Row]) -> list[Beside]:
    """Return the measures of a cell, means over its seeds, with the paper's numbers."""
    found = [measures(draw, row) for row in seeds if not row["error"]]
    if not found:
        return []
    first = next(row for row in seeds if not row["error"])
    table = _PRINTED_IN.get(draw)
    paper = printed(table, first) if table else {}
    shown = []
    for name in found[0]:
        values = [each[name] for each in found]
        spread = statistics.stdev(values) if len(values) > 1 else None
        shown.append(Beside(name, statistics.fmean(values), spread, paper.get(name)))
    return shown


def measures(draw: str, row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers that a definition looks at in a row."""
    if draw == "node-table":
        return dict(row["f1"])
    if draw == "classification-table":
        return {} if row.get("accuracy") is None else {"accuracy": row["accuracy"]}
    test = row.get("test") or {}
    return {name: test[name] for name in ("mrr", "hits@10") if name in test}
