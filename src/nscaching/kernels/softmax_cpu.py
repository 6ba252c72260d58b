"""The softmax over all entities on a CPU: its normaliser and its gradient, one loop each.

torch writes several tables of the size of the logits for it, which are larger than any cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from nscaching.kernels.numba_tools import Array, arrays, float_of
from nscaching.kernels.threads import as_many_threads_as_pay

#: Sums may be taken in any order, so that loops vectorise; infinities count.
_ARITHMETIC = {"contract", "reassoc"}
_compiled: Any = {"fastmath": _ARITHMETIC, "cache": True, "nogil": True, "error_model": "numpy"}
#: Below this exp is zero for all that follows, and above that it would be infinite.
_LEAST, _MOST = np.float32(-87.0), np.float32(88.0)


@njit(forceinline=True, **_compiled)
def _exp(x: Any) -> Any:
    """Take the exponential: a polynomial (Cephes' expf) that vectorises, within 2 ulp."""
    x = min(max(x, _LEAST), _MOST)
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * r + np.float32(1.3981999507e-3)
    y = y * r + np.float32(8.3334519073e-3)
    y = y * r + np.float32(4.1665795894e-2)
    y = y * r + np.float32(1.6666665459e-1)
    y = y * r + np.float32(5.0000001201e-1)
    y = y * r * r + r + np.float32(1)
    return y * float_of((np.int32(n) + np.int32(127)) << np.int32(23))


@njit(parallel=True, **_compiled)
def _logsumexp(logits: Array, total: Array) -> None:
    for i in prange(logits.shape[0]):
        highest = np.float32(-np.inf)
        for j in range(logits.shape[1]):
            highest = max(highest, logits[i, j])
        if highest == -np.inf:  # no candidate but padding
            total[i, 0] = highest
            continue
        added = np.float32(0)
        for j in range(logits.shape[1]):
            added += _exp(logits[i, j] - highest)
        total[i, 0] = highest + np.float32(math.log(added))


@njit(parallel=True, **_compiled)
def _gradient(
    logits: Array, total: Array, targets: Array, first: int, sharp: Any, spread: Any
) -> None:
    for i in prange(logits.shape[0]):
        whole = total[i, 0]
        for j in range(logits.shape[1]):
            logits[i, j] = _exp(logits[i, j] - whole) - spread
        place = targets[i] - first
        if 0 <= place < logits.shape[1]:
            logits[i, place] -= sharp


def logsumexp(logits: Tensor) -> Tensor:
    """Return the log-sum-exp of each row. Shapes: (q, n) -> (q, 1)."""
    total = torch.empty(len(logits), 1)
    with as_many_threads_as_pay(logits.numel()):
        _logsumexp(logits.numpy(), total.numpy())
    return total


def softmax_gradient(
    logits: Tensor, total: Tensor, targets: Tensor, first: int, sharp: float, spread: float
) -> Tensor:
    """Turn logits of a block of entities into the gradient of their scores, in place. (q, n)."""
    with as_many_threads_as_pay(logits.numel()):
        _gradient(
            logits.numpy(), *arrays(total, targets), first, np.float32(sharp), np.float32(spread)
        )
    return logits
