"""Counting better and equal scores on the CPU in one pass over them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

Array = np.ndarray[Any, Any]


@njit(parallel=True, cache=True, nogil=True, error_model="numpy")
def count_better(
    scores: Array, target: Array, offsets: Array, answers: Array, better: Array, equal: Array
) -> None:
    """Count, per query, the entities that score above its target, and the same as it.

    Known positives, the target among them, do not count. Shapes: scores (b, n); the scores of
    targets, better, equal (b,); offsets (b + 1,) into answers.
    """
    for i in prange(scores.shape[0]):
        true = target[i]
        above = 0
        same = 0
        for j in range(scores.shape[1]):
            above += scores[i, j] > true
            same += scores[i, j] == true
        for place in range(offsets[i], offsets[i + 1]):
            known = scores[i, answers[place]]
            above -= known > true
            same -= known == true
        better[i] = above
        equal[i] = same
