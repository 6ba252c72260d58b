"""Bootstrap intervals of ranking metrics, and of differences between two models.

The test facts are resampled with replacement, each with its two queries: the ranks of its head and
of its tail are not independent. Two models are compared on the same resampled facts (the paired
bootstrap), so that what is hard for both does not count as noise of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]

LEVEL = 0.95
RESAMPLES = 1000
#: Names of the metrics that have an interval, with the largest rank that counts as a hit.
HITS = {"hits@1": 1, "hits@3": 3, "hits@10": 10}
METRICS = ("mrr", *HITS)
#: Numbers drawn at once, which bounds the memory.
_BLOCK = 1 << 22


def fact_values(ranks: npt.NDArray[np.floating]) -> Floats:
    """Return what each fact adds to each of :data:`METRICS`. Shapes: (2, n) -> (n, 4)."""
    parts = [1.0 / ranks, *(ranks <= k for k in HITS.values())]
    return np.stack([np.asarray(part, dtype=np.float64).mean(axis=0) for part in parts], axis=1)


def bootstrap_means(values: Floats, *, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
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


def interval(means: Floats, level: float = LEVEL) -> Interval:
    """Return the percentile interval of bootstrapped means. Shape: (resamples,)."""
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def metric_intervals(
    values: Floats, *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Interval]:
    """Return the interval of each of :data:`METRICS` from :func:`fact_values`, shape (n, 4)."""
    if len(values) == 0:
        return {}
    means = bootstrap_means(values, resamples=resamples, seed=seed)
    return {name: interval(means[:, at], level) for at, name in enumerate(METRICS)}


def paired_difference(
    one: Floats,
    other: Floats,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, Interval]:
    """Return how much more ``one`` has than ``other`` on the same facts, with its interval.

    Shapes: (n,), (n,), the values of one metric for each fact.
    """
    gaps = (one - other).reshape(-1, 1)
    means = bootstrap_means(gaps, resamples=resamples, seed=seed)
    return float(gaps.mean()), interval(means[:, 0], level)


def within_noise(difference: Interval, by_seed: Sequence[float] = ()) -> bool:
    """Tell whether a difference may be chance: its interval holds 0, or seeds disagree on it."""
    low, high = difference
    disagree = len(by_seed) > 1 and min(by_seed) <= 0 <= max(by_seed)
    return low <= 0 <= high or disagree
