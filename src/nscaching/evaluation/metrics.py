"""Ranking metrics: MRR, MR, AMRI and Hits@k, overall and per side, relation and class.

Their bootstrap intervals resample the test facts with replacement, each with its two queries: the
ranks of its head and of its tail are not independent. Two models are compared on the same resampled
facts (the paired bootstrap), so that what is hard for both does not count as noise of the
difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.artefacts.showing import frame, html_table
from nscaching.evaluation.ranking import Ranks
from nscaching.graph import KnowledgeGraph
from nscaching.graph.pairs import CARDINALITIES
from nscaching.models import Side

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]

#: Names of the metrics that have an interval, with the largest rank that counts as a hit.
HITS = {"hits@1": 1, "hits@3": 3, "hits@10": 10}
METRICS = ("mrr", *HITS)
#: What models can be selected by on valid, with their names for people.
SELECTABLE = {
    "mrr": "MRR",
    "hits@1": "Hits@1",
    "hits@3": "Hits@3",
    "hits@10": "Hits@10",
    "accuracy": "accuracy",
}
#: Numbers drawn at once, which bounds the memory.
_BLOCK = 1 << 22


def fact_values(ranks: npt.NDArray[np.floating]) -> Floats:
    """Return what each fact adds to each of :data:`METRICS`. Shapes: (2, n) -> (n, 4)."""
    parts = [1.0 / ranks, *(ranks <= k for k in HITS.values())]
    return np.stack([np.asarray(part, dtype=np.float64).mean(axis=0) for part in parts], axis=1)


def bootstrap_means(values: Floats, *, resamples: int = 1000, seed: int = 0) -> Floats:
    """Return the means of resampled rows. Shapes: (n, m) -> (resamples, m).

    The columns of one call share their rows, so that columns can be subtracted from each other.
    """
    rows = len(values)
    rng = np.random.default_rng(seed)
    means = np.empty((resamples, values.shape[1]))
    step = max(1, _BLOCK // max(1, rows))
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        drawn = rng.integers(0, rows, (count, rows)) + rows * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * rows).reshape(count, rows)
        means[start : start + count] = times @ values / rows
    return means


def interval(means: Floats) -> Interval:
    """Return the 95 % percentile interval of bootstrapped means. Shape: (resamples,)."""
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def metric_intervals(values: Floats) -> dict[str, Interval]:
    """Return the interval of each of :data:`METRICS` from :func:`fact_values`, shape (n, 4)."""
    if len(values) == 0:
        return {}
    means = bootstrap_means(values)
    return {name: interval(means[:, at]) for at, name in enumerate(METRICS)}


def paired_difference(one: Floats, other: Floats) -> tuple[float, Interval]:
    """Return how much more ``one`` has than ``other`` on the same facts, with its interval.

    Shapes: (n,), (n,), the values of one metric for each fact.
    """
    gaps = (one - other).reshape(-1, 1)
    return float(gaps.mean()), interval(bootstrap_means(gaps)[:, 0])


def within_noise(difference: Interval, by_seed: Sequence[float] = ()) -> bool:
    """Tell whether a difference may be chance: its interval holds 0, or seeds disagree on it."""
    low, high = difference
    disagree = len(by_seed) > 1 and min(by_seed) <= 0 <= max(by_seed)
    return low <= 0 <= high or disagree


@dataclass(frozen=True)
class RankingMetrics:
    """Link-prediction quality of a set of ranks."""

    mrr: float  #: mean reciprocal rank
    mr: float  #: mean rank
    amri: float  #: adjusted mean rank index: 1 is perfect, 0 is chance
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float
    count: int  #: ranks these are over

    @classmethod
    def of(cls, rank: np.ndarray, among: np.ndarray) -> RankingMetrics:
        """Compute the metrics of ranks, each among ``among`` entities; all NaN for no rank."""
        if len(rank) == 0:
            nan = float("nan")
            return cls(nan, nan, nan, nan, nan, nan, 0)
        chance = float((among - 1).mean()) / 2
        return cls(
            mrr=float((1 / rank).mean()),
            mr=float(rank.mean()),
            amri=1 - (float(rank.mean()) - 1) / chance if chance > 0 else 0.0,
            hits_at_1=float((rank <= 1).mean()),
            hits_at_3=float((rank <= 3).mean()),
            hits_at_10=float((rank <= 10).mean()),
            count=len(rank),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics under their usual names, ``hits@10`` and so on; NaN becomes None."""
        values = {each.name: getattr(self, each.name) for each in fields(RankingMetrics)}
        return {
            name.replace("_at_", "@"): None if value != value else value
            for name, value in values.items()
        }


@dataclass(frozen=True)
class RankingReport(RankingMetrics):
    """Metrics over both sides, and their parts by side, relation and cardinality class."""

    split: str
    seconds: float
    head: RankingMetrics
    tail: RankingMetrics
    per_relation: dict[str, RankingMetrics]
    per_cardinality: dict[str, RankingMetrics]
    #: Ranks of the heads and of the tails, in the order of the split; shape: (2, n).
    ranks: np.ndarray = field(repr=False, compare=False, default_factory=lambda: np.empty((2, 0)))

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """95 % bootstrap intervals of MRR and Hits@k over both sides, by their usual names."""
        return metric_intervals(fact_values(self.ranks))

    @classmethod
    def build(
        cls,
        graph: KnowledgeGraph,
        triples: np.ndarray,
        ranks: dict[Side, Ranks],
        *,
        split: str,
        seconds: float,
    ) -> RankingReport:
        """Break ranks down; relations and classes without a triple are omitted."""
        rank = np.stack([ranks[side].rank for side in Side])
        among = np.stack([ranks[side].among for side in Side])
        relations = triples[:, 1]

        def metrics(mask: np.ndarray) -> RankingMetrics:
            return RankingMetrics.of(rank[:, mask].ravel(), among[:, mask].ravel())

        classes = np.array([CARDINALITIES.index(c) for c in graph.statistics.cardinality])
        per_cardinality = {
            name: metrics(classes[relations] == index)
            for index, name in enumerate(CARDINALITIES)
            if len(triples) and (classes[relations] == index).any()
        }
        overall = RankingMetrics.of(rank.ravel(), among.ravel())
        return cls(
            **overall.__dict__,
            split=split,
            seconds=seconds,
            head=RankingMetrics.of(rank[0], among[0]),
            tail=RankingMetrics.of(rank[1], among[1]),
            per_relation={
                graph.relations[r]: metrics(relations == r) for r in np.unique(relations)
            },
            per_cardinality=per_cardinality,
            ranks=rank,
        )

    def to_frame(self) -> Any:
        """Return a pandas data frame: both sides, each side, and each relation."""
        return frame(self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        parts = {"both sides": self.overall(), "heads": self.head.as_dict()}
        parts["tails"] = self.tail.as_dict()
        parts |= {name: part.as_dict() for name, part in self.per_relation.items()}
        return [{"of": name, **values} for name, values in parts.items()]

    def __repr__(self) -> str:
        return (
            f"<RankingReport of {self.split}: MRR {self.mrr:.4f}, Hits@10 {self.hits_at_10:.4f}, "
            f"{self.count:,} ranks>"
        )

    def _repr_html_(self) -> str:
        rows = self._rows()
        return html_table(rows, [*rows[0]])

    def overall(self) -> dict[str, Any]:
        """Return the metrics over both sides alone, as plain values."""
        return super().as_dict()

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, parts included."""
        return {
            "split": self.split,
            "seconds": self.seconds,
            **self.overall(),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "head": self.head.as_dict(),
            "tail": self.tail.as_dict(),
            "per_relation": {name: part.as_dict() for name, part in self.per_relation.items()},
            "per_cardinality": {
                name: part.as_dict() for name, part in self.per_cardinality.items()
            },
        }
