"""Ranking metrics: MRR, MR, AMRI and Hits@k, overall and per side, relation and class; leakage.

Their bootstrap intervals resample the test facts with replacement, each with its two queries: the
ranks of its head and of its tail are not independent. Two models are compared on the same resampled
facts (the paired bootstrap), so that what is hard for both does not count as noise of the
difference.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.artefacts.showing import frame, html_table
from nscaching.errors import plural
from nscaching.evaluation.ranking import Ranks, rank_triples
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import Floats, Ids, Integers, Longs
from nscaching.graph.pairs import CARDINALITIES, blocks_of, contained, pair_keys, ranges
from nscaching.graph.splitting import group_numbers
from nscaching.models import EmbeddingModel, Side

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
#: From this gain of the MRR on there is something to say about loops.
LOOPS_WORTH_SAYING = 0.001
#: Facts below which metrics are remarked on: bootstrap intervals of so few are too narrow.
FEW_FACTS = 30
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


def few_facts_remark(facts: int, split: str = "test") -> str | None:
    """Return a sentence for a person, where metrics rest on few facts of a split."""
    if not 0 < facts < FEW_FACTS:
        return None
    some = plural(facts, "fact")
    return (
        f"These metrics rest on {some} of {split}: take them as rough. Their intervals are too "
        "narrow, and differences may be chance."
    )


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
            count=len(rank),
            **{f"hits_at_{k}": float((rank <= k).mean()) for k in HITS.values()},
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
    """Metrics over both sides; their parts by side, relation and cardinality class, when asked."""

    split: str
    seconds: float
    #: Ranks of the heads and of the tails, in the order of the split; shape: (2, n).
    ranks: np.ndarray = field(repr=False, compare=False)
    _among: np.ndarray = field(repr=False, compare=False)  #: (2, n) entities of each rank
    _loop_free: np.ndarray = field(repr=False, compare=False)  #: (2, n) ranks without loops
    _triples: np.ndarray = field(repr=False, compare=False)  #: (n, 3)
    _graph: KnowledgeGraph = field(repr=False, compare=False)

    @cached_property
    def head(self) -> RankingMetrics:
        """Metrics of the questions for heads."""
        return RankingMetrics.of(self.ranks[0], self._among[0])

    @cached_property
    def tail(self) -> RankingMetrics:
        """Metrics of the questions for tails."""
        return RankingMetrics.of(self.ranks[1], self._among[1])

    @cached_property
    def without_loops(self) -> RankingMetrics:
        """Over both sides, where no entity is a candidate for an irreflexive relation to itself."""
        return RankingMetrics.of(self._loop_free.ravel(), self._among.ravel())

    @cached_property
    def per_relation(self) -> dict[str, RankingMetrics]:
        """Metrics by relation; those without a triple are omitted."""
        parts = self._by(self._triples[:, 1])
        return {self._graph.relations[relation]: part for relation, part in parts}

    @cached_property
    def per_cardinality(self) -> dict[str, RankingMetrics]:
        """Metrics by cardinality class of the relation; classes without a triple are omitted."""
        classes = np.array([CARDINALITIES.index(c) for c in self._graph.statistics.cardinality])
        parts = self._by(classes[self._triples[:, 1]]) if len(self._triples) else ()
        return {CARDINALITIES[number]: part for number, part in parts}

    def _by(self, groups: Integers) -> Iterator[tuple[int, RankingMetrics]]:
        """Return the metrics of each group of facts, in the order of groups. Shape: (n,)."""
        order = np.argsort(groups, kind="stable")
        begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
        for part in np.split(order, begins[1:]) if len(order) else ():
            ranks, among = self.ranks[:, part].ravel(), self._among[:, part].ravel()
            yield int(groups[part[0]]), RankingMetrics.of(ranks, among)

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """95 % bootstrap intervals of MRR and Hits@k over both sides, by their usual names."""
        return metric_intervals(fact_values(self.ranks))

    @classmethod
    def of_split(
        cls,
        model: EmbeddingModel,
        graph: KnowledgeGraph,
        split: str,
        *,
        facts: Ids | None = None,
        **how: Any,
    ) -> RankingReport:
        """Rank a split, or some facts of it; ``how`` is what :func:`rank_triples` takes."""
        started, triples = time.monotonic(), graph.split(split) if facts is None else facts
        ranks = rank_triples(model, graph, triples, **how)
        seconds = time.monotonic() - started
        return cls.build(graph, triples, ranks, split=split, seconds=seconds)

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
        """Return the report of ranks of triples (n, 3)."""
        names = {"ranks": "rank", "_among": "among", "_loop_free": "without_loops"}
        parts: dict[str, Any] = {
            part: np.stack([getattr(ranks[side], name) for side in Side])
            for part, name in names.items()
        }
        overall = RankingMetrics.of(parts["ranks"].ravel(), parts["_among"].ravel()).__dict__
        parts |= {"_triples": triples, "_graph": graph}
        return cls(**overall, split=split, seconds=seconds, **parts)

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

    @property
    def loop_remark(self) -> str | None:
        """One sentence for a person, where entities themselves stand above the true answers."""
        if self.without_loops.mrr - self.mrr < LOOPS_WORTH_SAYING:
            return None
        less = self.without_loops
        return (
            f"Without loops, MRR is {less.mrr:.4f} and Hits@1 {less.hits_at_1:.4f}: (h, r, h) is "
            "then no candidate for relations that have no such fact in train, as predict answers."
        )

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
            "without_loops": self.without_loops.as_dict(),
        }


# Leakage: held-out facts that training gives away -----------------------------------------------
#
# Two relations overlap strongly where at least half of the training facts of each have a
# counterpart under the other: (h, r', t) for duplicates, (t, r', h) for inverses; a symmetric
# relation is its own inverse. A held-out fact (h, r, t) leaks where such a counterpart is in
# training: a model answers it by copying. WN18 and FB15K are known for it.

#: The share of the facts of both relations that must have a counterpart under the other.
STRONG = 0.5
#: Facts up to which all are looked at for relations that overlap; of more about so many are.
_LOOKED_AT = 1 << 23
#: From this share of the held-out facts on there is something to say.
WORTH_SAYING = 0.01


@dataclass(frozen=True)
class Leakage:
    """How many held-out facts have a counterpart in training, and through which relations."""

    split: str
    leaked: int
    facts: int
    pairs: list[tuple[str, str, str]]  #: two relations and "inverse" or "duplicate", most first

    @property
    def share(self) -> float:
        """The share of the held-out facts that leak."""
        return self.leaked / self.facts if self.facts else 0.0

    @property
    def remark(self) -> str | None:
        """One sentence for a person, where there is something to say."""
        if self.share < WORTH_SAYING:
            return None
        one, other, kind = self.pairs[0]
        example = f"{one} is symmetric" if one == other else f"{one} and {other} are {kind}s"
        return (
            f"{self.share:.0%} of the {self.split} facts have an inverse or duplicate in train "
            f"({example}): these are answered by copying, so the metrics flatter."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        pairs = [{"relations": [one, other], "kind": kind} for one, other, kind in self.pairs]
        return {"split": self.split, "leaked": self.leaked, "share": self.share, "pairs": pairs}


def find_leakage(graph: KnowledgeGraph, split: str = "test") -> Leakage:
    """Count the facts of a split that training gives away."""
    facts, train = graph.split(split).astype(np.int64), graph.train
    some = _whole_pairs(train, graph.num_entities)
    leaked = np.zeros(len(facts), dtype=bool)
    through: dict[tuple[int, int, str], int] = {}
    for kind, columns in (("duplicate", [0, 2]), ("inverse", [2, 0])):
        partners = _strong_pairs(some, columns, graph.num_entities, graph.num_relations)
        at, counterparts = _counterparts(facts, columns, partners)
        found = contained(counterparts, train, graph.num_entities, graph.num_relations)
        leaked[at[found]] = True
        pairs = np.stack([facts[at[found], 1], counterparts[found, 1]], axis=1)
        for (r, other), count in zip(*np.unique(pairs, axis=0, return_counts=True), strict=True):
            key = (min(int(r), int(other)), max(int(r), int(other)), kind)
            through[key] = through.get(key, 0) + int(count)
    ordered = sorted(through, key=lambda key: -through[key])
    named = [(graph.relations[r], graph.relations[s], kind) for r, s, kind in ordered]
    return Leakage(split, int(leaked.sum()), len(facts), named)


def _whole_pairs(train: Ids, entities: int) -> Ids:
    """Return some facts of a large graph, with all that are over the same two entities; (n, 3)."""
    every = -(-len(train) // _LOOKED_AT)
    if every == 1:
        return train
    parts = blocks_of(train)  # the numbers are random, and odd
    few = [part[group_numbers(part, entities, 0) % np.uint64(2 * every) < 2] for part in parts]
    return np.concatenate(few)


def _strong_pairs(train: Ids, columns: list[int], entities: int, relations: int) -> Longs:
    """Return pairs (r, r') that overlap strongly when r' is read in these columns; (n, 2)."""
    from scipy import sparse

    ends = ([0, 2], columns)
    pairs = [pair_keys(train[:, first], train[:, second], entities) for first, second in ends]
    number = np.unique(np.concatenate(pairs), return_inverse=True)[1].reshape(2, -1)
    shape = (int(number.max(initial=-1)) + 1, relations)
    ones = np.ones(len(train), dtype=np.int64)
    plain, turned = (sparse.csr_array((ones, (rows, train[:, 1])), shape) for rows in number)
    both = (plain.T @ turned).tocoo()
    of_relation = np.bincount(train[:, 1], minlength=relations)
    largest = np.maximum(of_relation[both.row], of_relation[both.col])
    strong = both.data >= STRONG * largest
    if columns == [0, 2]:  # every relation is its own duplicate
        strong &= both.row != both.col
    return np.stack([both.row[strong], both.col[strong]], axis=1).astype(np.int64)


def _counterparts(facts: Longs, columns: list[int], partners: Longs) -> tuple[Longs, Longs]:
    """Return the counterparts that facts would have; shapes: (m,) which fact, (m, 3) triples."""
    order = np.argsort(partners[:, 0], kind="stable")
    first, partner = partners[order, 0], partners[order, 1]
    start, end = (np.searchsorted(first, facts[:, 1], side) for side in ("left", "right"))
    at, place = ranges(start, end - start)
    ends = facts[at][:, columns]
    return at, np.stack([ends[:, 0], partner[place], ends[:, 1]], axis=1)
