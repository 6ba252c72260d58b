"""What the passes of all families share on the CPU: fetching rows ahead, and the loss of a pair.

The losses are those of :mod:`nscaching.losses`: margin ranking where ``margin`` is above 0, else
logistic.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nscaching.kernels.compiled import Array, inline
from nscaching.kernels.llvm import LINE_BYTES, prefetch

#: Triples between the one whose rows are asked for and the one at hand.
_AHEAD = 2


@inline
def fetch_ahead(entity: Array, heads: Array, tails: Array, negatives: Array, i: int) -> None:
    """Ask memory for the rows of a triple that comes soon."""
    later = min(i + _AHEAD, len(heads) - 1)
    for byte in range(0, entity.shape[1] * entity.itemsize, LINE_BYTES):
        prefetch(entity, heads[later], byte)
        prefetch(entity, tails[later], byte)
        for j in range(negatives.shape[1]):
            prefetch(entity, negatives[later, j], byte)


@inline
def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)), for any x."""
    return np.float32(max(x, np.float32(0)) + math.log1p(math.exp(-abs(x))))


@inline
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return np.float32(1) / (np.float32(1) + np.float32(math.exp(-x)))


@inline
def positive_loss(positive: Any, margin: float) -> Any:
    """Loss of a positive by itself, and its derivative by the score."""
    if margin > 0:
        return np.float32(0), np.float32(0)
    return softplus(-positive), -sigmoid(-positive)


@inline
def negative_loss(positive: Any, negative: Any, weight: Any, margin: float) -> Any:
    """Loss of a negative, and its derivatives by the scores of the positive and the negative."""
    if margin > 0:
        gap = np.float32(margin) - positive + negative
        pull = weight if gap > 0 else np.float32(0)
        return pull * gap, -pull, pull
    return weight * softplus(negative), np.float32(0), weight * sigmoid(negative)
