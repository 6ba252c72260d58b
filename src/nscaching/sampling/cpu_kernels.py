"""Renewing cache rows on the CPU in one pass: what ``Cache.update`` does, as a Numba loop.

For each row: leave out repeats and known positives, rescale the scores, add hashed Gumbel noise,
keep the N1 largest in the order in which they stood. Compiled on first use and kept on disk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from nscaching.sampling.hashing import GOLDEN, MIX_1, MIX_2, NOISE_STREAM
from nscaching.sampling.softmax import HIGH_QUANTILE, LOW_QUANTILE

Array = np.ndarray[Any, Any]

_GOLDEN, _MIX_1, _MIX_2 = np.uint64(GOLDEN), np.uint64(MIX_1), np.uint64(MIX_2)
_NOISE_STREAM = np.uint64(NOISE_STREAM)
_inline = njit(cache=True, nogil=True, error_model="numpy")


@_inline
def _mix(bits: np.uint64) -> np.uint64:
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))


@_inline
def _select(values: Array, left: int, length: int, k: int) -> Any:
    """Return the k-th smallest of all, given that the ``left`` smallest stand in front already.

    The values are reordered: those before k are not larger, those after it not smaller.
    """
    right = length - 1
    while left < right:
        pivot = values[(left + right) >> 1]
        i, j = left, right
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            right = j
        elif k >= i:
            left = i
        else:
            break
    return values[k]


@_inline
def _quantile(values: Array, left: int, length: int, q: float) -> Any:
    """Return the q-quantile with linear interpolation; reorders the values as ``_select`` does."""
    place = np.float32((length - 1) * q)
    below = math.floor(place)
    low = _select(values, left, length, below)
    if below + 1 >= length or place == below:
        return low
    high = values[below + 1]
    for i in range(below + 2, length):
        high = min(high, values[i])
    return low + (high - low) * np.float32(place - below)


@_inline
def _holds(answers: Array, start: int, stop: int, entity: int) -> bool:
    """Tell whether the ascending answers between two places hold an entity."""
    while start < stop:
        middle = (start + stop) >> 1
        if answers[middle] == entity:
            return True
        if answers[middle] < entity:
            start = middle + 1
        else:
            stop = middle
    return False


@njit(parallel=True, cache=True, nogil=True, error_model="numpy")
def offer_rows(
    ids: Array,
    rows: Array,
    offered: Array,
    offsets: Array,
    answers: Array,
    num_entities: int,
    seed: np.uint64,
) -> None:
    """Fill in what rows hold and are offered, -1 for padding and known positives.

    Shapes: ids (all rows, N1); rows (b,); offered (b, N1 + N2), N2 entities drawn by hashing, or
    all of them where N2 is their number; offsets (all rows + 1,) into answers, or (0,) for none.
    """
    size = ids.shape[1]
    count = offered.shape[1] - size
    for i in prange(rows.shape[0]):
        row = rows[i]
        for j in range(size):
            offered[i, j] = ids[row, j]
        stream = _mix(seed + np.uint64(row) * _GOLDEN)
        for j in range(count):
            entity: Any = np.int64(j)
            if count < num_entities:
                bits = _mix(stream + np.uint64(j + 1) * _GOLDEN) >> np.uint64(33)
                entity = np.int64((bits * np.uint64(num_entities)) >> np.uint64(31))
            if offsets.shape[0] > 0 and _holds(answers, offsets[row], offsets[row + 1], entity):
                entity = np.int64(-1)
            offered[i, size + j] = entity


@njit(parallel=True, cache=True, nogil=True, error_model="numpy")
def renew_rows(
    ids: Array,
    scores: Array,
    rows: Array,
    candidates: Array,
    candidate_scores: Array,
    alpha: float,
    weighting: int,
    seed: np.uint64,
) -> None:
    """Write the kept candidates and their scores into the rows of the cache.

    Shapes: ids, scores (all rows, N1); rows (b,); candidates, candidate_scores (b, k) with -1 for
    what may not enter. ``weighting`` is one of those of :mod:`nscaching.sampling.cache`.
    """
    size = ids.shape[1]
    count = candidates.shape[1]
    slots = 16
    while slots < 2 * count:
        slots *= 2
    for i in prange(rows.shape[0]):
        row = rows[i]
        valid = np.ones(count, dtype=np.bool_)
        table = np.full(slots, -1, dtype=np.int32)
        live = 0
        for j in range(count):
            entity = np.int32(candidates[i, j])
            if entity < 0:
                valid[j] = False
                continue
            slot = (np.int64(entity) * 2654435761) & (slots - 1)
            while table[slot] != -1 and table[slot] != entity:
                slot = (slot + 1) & (slots - 1)
            if table[slot] == entity:
                valid[j] = False
            else:
                table[slot] = entity
                live += 1
        keys = np.full(count, -np.inf, dtype=np.float32)
        work = np.empty(count, dtype=np.float32)
        low = np.float32(0)
        high = np.float32(0)
        if weighting == 2 and live > 0:
            used = 0
            for j in range(count):
                if valid[j]:
                    work[used] = candidate_scores[i, j]
                    used += 1
            low = np.float32(_quantile(work, 0, live, LOW_QUANTILE))
            lower = math.floor(np.float32((live - 1) * LOW_QUANTILE))
            high = np.float32(_quantile(work, lower, live, HIGH_QUANTILE))
        stream = _mix(seed + np.uint64(row) * _GOLDEN)
        for j in range(count):
            if not valid[j]:
                continue
            score = candidate_scores[i, j]
            if weighting == 3:
                keys[j] = score
                continue
            bits = _mix(stream + (_NOISE_STREAM + np.uint64(j + 1)) * _GOLDEN)
            uniform = (np.float32(bits >> np.uint64(41)) + np.float32(0.5)) * np.float32(2.0**-23)
            key = -np.float32(math.log(-np.float32(math.log(uniform))))
            if weighting == 1:
                key += np.float32(alpha) * score
            elif weighting == 2:
                if high > low:
                    scaled = (score - low) / (high - low)
                    key += np.float32(alpha) * min(max(scaled, np.float32(0)), np.float32(1))
                elif score > high:
                    key += np.float32(alpha)
            keys[j] = key
        keep = min(size, live)
        threshold = np.float32(-np.inf)
        above = live
        if live > size:
            for j in range(count):
                work[j] = keys[j]
            threshold = np.float32(_select(work, 0, count, count - size))
            above = 0
            for j in range(count):
                if keys[j] > threshold:
                    above += 1
        ties = keep - above
        written = 0
        for j in range(count):
            if not valid[j]:
                continue
            if keys[j] < threshold:
                continue
            if keys[j] == threshold:
                if ties <= 0:
                    continue
                ties -= 1
            ids[row, written] = np.int32(candidates[i, j])
            scores[row, written] = candidate_scores[i, j]
            written += 1
        for j in range(written, size):
            ids[row, j] = -1
            scores[row, j] = 0
