"""Draws from a softmax over few candidates on the CPU: chances and picks in one loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from nscaching.kernels.all_pairs_cpu import ARITHMETIC, exp
from nscaching.kernels.numba_tools import Array, arrays
from nscaching.kernels.threads import as_many_threads_as_pay

#: Numbers handled for one candidate, roughly.
_WORK = 4


@njit(parallel=True, fastmath=ARITHMETIC, cache=True, nogil=True, error_model="numpy")
def _draw_softmax(logits: Array, uniform: Array, picked: Array, chances: Array) -> None:
    k = logits.shape[1]
    for place in prange(logits.shape[0]):
        i: Any = np.int64(place)  # prange counts unsigned, and unsigned plus signed is a float
        top = np.float32(-np.inf)
        last = 0
        for j in range(k):
            there = logits[i, j] > -np.inf
            top = max(top, logits[i, j])
            last = j if there else last
        total = np.float32(0)
        for j in range(k):
            weight = exp(logits[i, j] - top) if logits[i, j] > -np.inf else np.float32(0)
            chances[i, j] = weight
            total += weight
        for draw in range(uniform.shape[1]):
            wanted = uniform[i, draw] * total
            j = 0
            reached = chances[i, 0]
            while j < last and reached <= wanted:
                j += 1
                reached += chances[i, j]
            picked[i, draw] = j
        share = np.float32(1) / total if total > 0 else np.float32(0)
        for j in range(k):
            chances[i, j] *= share


def draw_softmax(logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Do what :func:`nscaching.sampling.softmax.draw_softmax` says."""
    picked = torch.empty(uniform.shape, dtype=torch.int64)
    chances = torch.empty(logits.shape)
    with as_many_threads_as_pay(_WORK * logits.numel()):
        _draw_softmax(*arrays(logits, uniform, picked, chances))
    return picked, chances
