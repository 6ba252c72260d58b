"""The losses of :mod:`nscaching.losses` for one pair of scores, as parts of Numba loops.

``margin`` above 0 is margin ranking, else logistic.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nscaching.scoring.compiled import inline


@inline
def _softplus(x: Any) -> Any:
    return np.float32(max(x, np.float32(0)) + math.log1p(math.exp(-abs(x))))


@inline
def _sigmoid(x: Any) -> Any:
    return np.float32(1) / (np.float32(1) + np.float32(math.exp(-x)))


@inline
def positive_loss(positive: Any, margin: float) -> Any:
    """Loss of a positive by itself, and its derivative by the score."""
    if margin > 0:
        return np.float32(0), np.float32(0)
    return _softplus(-positive), -_sigmoid(-positive)


@inline
def negative_loss(positive: Any, negative: Any, weight: Any, margin: float) -> Any:
    """Loss of a negative, and its derivatives by the scores of the positive and the negative."""
    if margin > 0:
        gap = np.float32(margin) - positive + negative
        pull = weight if gap > 0 else np.float32(0)
        return pull * gap, -pull, pull
    return weight * _softplus(negative), np.float32(0), weight * _sigmoid(negative)
