"""All queries and all entities on the CPU, as Numba loops.

Distances, their gradients, ranks; and the softmax over all entities, its normaliser and its
gradient, one loop each. torch writes several tables of the size of the logits for it, which are
larger than any cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from nscaching.kernels.numba_tools import Array, arrays, exact_parallel, float_of, parallel
from nscaching.kernels.threads import as_many_threads_as_pay

#: Entities that stay in the nearest cache while all queries pass over them.
_BLOCK = 64


@parallel
def _all_distances(query: Array, views: Array, scores: Array, norm: int) -> None:
    width = query.shape[1]
    for block in prange((views.shape[0] + _BLOCK - 1) // _BLOCK):
        stop = min(views.shape[0], (block + 1) * _BLOCK)
        for i in range(query.shape[0]):
            for j in range(block * _BLOCK, stop):
                total = np.float32(0)
                if norm == 1:
                    for d in range(width):
                        total += abs(query[i, d] - views[j, d])
                    scores[i, j] = -total
                else:
                    for d in range(width):
                        gap = query[i, d] - views[j, d]
                        total += gap * gap
                    scores[i, j] = -np.float32(math.sqrt(total))


@parallel
def _all_moduli(query: Array, views: Array, scores: Array) -> None:
    dim = query.shape[1] // 2
    for block in prange((views.shape[0] + _BLOCK - 1) // _BLOCK):
        stop = min(views.shape[0], (block + 1) * _BLOCK)
        for i in range(query.shape[0]):
            for j in range(block * _BLOCK, stop):
                total = np.float32(0)
                for d in range(dim):
                    re = query[i, d] - views[j, d]
                    im = query[i, dim + d] - views[j, dim + d]
                    total += np.float32(math.sqrt(re * re + im * im))
                scores[i, j] = -total


@parallel
def _sign_sums(query: Array, views: Array, d_scores: Array, sums: Array) -> None:
    for i in prange(query.shape[0]):
        sums[i] = 0
        for j in range(views.shape[0]):
            slope = d_scores[i, j]
            for d in range(query.shape[1]):
                gap = query[i, d] - views[j, d]
                step = -slope if gap > 0 else slope
                sums[i, d] += step if gap != 0 else np.float32(0)


@parallel
def _direction_sums(query: Array, views: Array, d_scores: Array, sums: Array) -> None:
    dim = query.shape[1] // 2
    for i in prange(query.shape[0]):
        sums[i] = 0
        for j in range(views.shape[0]):
            slope = d_scores[i, j]
            for d in range(dim):
                re = query[i, d] - views[j, d]
                im = query[i, dim + d] - views[j, dim + d]
                modulus = np.float32(math.sqrt(re * re + im * im))
                factor = slope / (modulus if modulus > 0 else np.float32(1))
                sums[i, d] -= factor * re
                sums[i, dim + d] -= factor * im


@exact_parallel
def _count_above(
    scores: Array,
    row: Array,
    true: Array,
    starts: Array,
    known: Array,
    better: Array,
    equal: Array,
) -> None:
    for i in prange(row.shape[0]):
        of_question = scores[row[i]]
        above = 0
        same = 0
        for j in range(scores.shape[1]):
            above += of_question[j] > true[i]
            same += of_question[j] == true[i]
        for place in range(starts[row[i]], starts[row[i] + 1]):
            score = of_question[known[place]]
            above -= score > true[i]
            same -= score == true[i]
        better[i] = above
        equal[i] = same


# The forms that the registry names ---------------------------------------------------------------


def all_distances(query: Tensor, views: Tensor, norm: int) -> Tensor:
    """Score all pairs by the negative p-norm. Shapes: (b, q), (n, q) -> (b, n)."""
    scores = torch.empty(len(query), len(views))
    _all_distances(*arrays(query, views, scores), norm)
    return scores


def all_moduli(query: Tensor, views: Tensor) -> Tensor:
    """Score all pairs by the negative sum of complex moduli. Shapes: (b, q), (n, q) -> (b, n)."""
    scores = torch.empty(len(query), len(views))
    _all_moduli(*arrays(query, views, scores))
    return scores


def sign_sums(query: Tensor, views: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries from L1 distances. Shapes: (b, q), (n, q), (b, n)."""
    sums = torch.empty(query.shape)
    _sign_sums(*arrays(query, views, d_scores, sums))
    return sums


def direction_sums(query: Tensor, views: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries from complex moduli. Shapes: (b, q), (n, q), (b, n)."""
    sums = torch.empty(query.shape)
    _direction_sums(*arrays(query, views, d_scores, sums))
    return sums


def count_above(
    scores: Tensor, row: Tensor, true: Tensor, question: Tensor, entity: Tensor
) -> tuple[Tensor, Tensor]:
    """Count the entities above the true one and equal to it, in one pass over the scores.

    Those that are listed with their question, ascending, do not count.
    Shapes: (u, n), (b,), (b,), (m,), (m,) -> (b,) twice.
    """
    starts = torch.searchsorted(question, torch.arange(len(scores) + 1))
    better, equal = torch.empty(2, len(row), dtype=torch.int64)
    _count_above(*arrays(scores, row, true, starts, entity, better, equal))
    return better, equal


# Softmax -----------------------------------------------------------------------------------------

#: Sums may be taken in any order, so that loops vectorise; infinities count.
ARITHMETIC = {"contract", "reassoc"}
_compiled: Any = {"fastmath": ARITHMETIC, "cache": True, "nogil": True, "error_model": "numpy"}
#: Below this exp is zero for all that follows, and above that it would be infinite.
_LEAST, _MOST = np.float32(-87.0), np.float32(88.0)


@njit(forceinline=True, **_compiled)
def exp(x: Any) -> Any:
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
            added += exp(logits[i, j] - highest)
        total[i, 0] = highest + np.float32(math.log(added))


@njit(parallel=True, **_compiled)
def _gradient(
    logits: Array, total: Array, targets: Array, first: int, sharp: Any, spread: Any
) -> None:
    for i in prange(logits.shape[0]):
        whole = total[i, 0]
        for j in range(logits.shape[1]):
            logits[i, j] = exp(logits[i, j] - whole) - spread
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
