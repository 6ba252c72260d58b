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
def mix(bits: np.uint64) -> np.uint64:
    """Scramble 64 bits, as SplitMix64 does."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))


@_inline
def _ordered(bits: Any) -> Any:
    """Map the bits of a float to an int32 that sorts as the float does, and back."""
    return bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))


@_inline
def _select(values: Array, length: int, k: int) -> Any:
    """Return the k-th smallest int32 (from 0) by bisection: counting vectorises."""
    low, high = np.int64(-(2**31)), np.int64(2**31 - 1)
    while low < high:
        middle = (low + high) >> 1
        bound = np.int32(middle)
        count = np.int32(0)
        for j in range(length):
            count += np.int32(values[j] <= bound)
        if count > k:
            high = middle
        else:
            low = middle + 1
    return np.int32(low)


@_inline
def _quantile(values: Array, length: int, q: float, scratch: Array) -> Any:
    """Return the q-quantile of ordered int32s, with linear interpolation, as a float.

    ``scratch`` holds two int32 whose float32 view is read: the order statistics around the place.
    """
    place = np.float32((length - 1) * q)
    below = math.floor(place)
    low = _select(values, length, below)
    high = np.int32(2**31 - 1)
    count = np.int32(0)
    for j in range(length):
        count += np.int32(values[j] <= low)
        high = min(high, values[j] if values[j] > low else np.int32(2**31 - 1))
    if count > below + 1 or place == below:
        high = low
    scratch[0], scratch[1] = _ordered(low), _ordered(high)
    ends = scratch.view(np.float32)
    return ends[0] + (ends[1] - ends[0]) * np.float32(place - below)


@_inline
def holds(answers: Array, start: int, stop: int, entity: int) -> bool:
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


@njit(fastmath={"contract", "reassoc"}, cache=True, nogil=True, error_model="numpy")
def _log(values: Array, bits: Array, count: int) -> None:
    """Take logarithms of positive normal floats in place; ``bits`` is their view as int32.

    A polynomial (Cephes' logf) that vectorises, unlike a call for each; within 2 ulp.
    """
    for j in range(count):
        whole = bits[j]
        exponent = np.float32((whole >> 23) - 126)
        bits[j] = (whole & 0x007FFFFF) | 0x3F000000
        x = values[j]
        small = x < np.float32(0.70710678)
        exponent -= np.float32(1) if small else np.float32(0)
        x = (x + x if small else x) - np.float32(1)
        y = np.float32(7.0376836292e-2)
        y = y * x - np.float32(1.1514610310e-1)
        y = y * x + np.float32(1.1676998740e-1)
        y = y * x - np.float32(1.2420140846e-1)
        y = y * x + np.float32(1.4249322787e-1)
        y = y * x - np.float32(1.6668057665e-1)
        y = y * x + np.float32(2.0000714765e-1)
        y = y * x - np.float32(2.4999993993e-1)
        y = y * x + np.float32(3.3333331174e-1)
        z = x * x
        y = y * x * z - np.float32(2.12194440e-4) * exponent - np.float32(0.5) * z
        values[j] = x + y + np.float32(0.693359375) * exponent


@njit(parallel=True, cache=True, nogil=True, error_model="numpy")
def sample_rows(
    head_ids: Array,
    tail_ids: Array,
    head_rows: Array,
    tail_rows: Array,
    relations: Array,
    head_probability: Array,
    uniform: Array,
    entities: Array,
    replaces_head: Array,
    exists: Array,
) -> None:
    """Draw a side and, evenly, an entity of its row; ``uniform`` (b, 2k) decides both.

    Shapes: ids (all rows, N1); rows, relations (b,); entities, replaces_head, exists (b, k).
    """
    size = head_ids.shape[1]
    k = entities.shape[1]
    for i in prange(entities.shape[0]):
        for j in range(k):
            swap = uniform[i, j] < head_probability[relations[i]]
            ids = head_ids if swap else tail_ids
            row = head_rows[i] if swap else tail_rows[i]
            held = size
            while held > 0 and ids[row, held - 1] < 0:
                held -= 1
            place = min(int(uniform[i, k + j] * np.float32(held)), held - 1)
            entities[i, j] = ids[row, place] if held > 0 else 0
            replaces_head[i, j] = swap
            exists[i, j] = held > 0


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
        stream = mix(seed + np.uint64(row) * _GOLDEN)
        for j in range(count):
            entity: Any = np.int64(j)
            if count < num_entities:
                bits = mix(stream + np.uint64(j + 1) * _GOLDEN) >> np.uint64(33)
                entity = np.int64((bits * np.uint64(num_entities)) >> np.uint64(31))
            if offsets.shape[0] > 0 and holds(answers, offsets[row], offsets[row + 1], entity):
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
    scale = np.float32(2.0**-23)
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
        order = work.view(np.int32)
        scratch = np.empty(2, dtype=np.int32)
        noise = np.empty(count, dtype=np.float32)
        low = np.float32(0)
        high = np.float32(0)
        if weighting == 2 and live > 0:
            used = 0
            for j in range(count):
                if valid[j]:
                    work[used] = candidate_scores[i, j]
                    used += 1
            for j in range(live):
                order[j] = _ordered(order[j])
            low = np.float32(_quantile(order, live, LOW_QUANTILE, scratch))
            high = np.float32(_quantile(order, live, HIGH_QUANTILE, scratch))
        stream = mix(seed + np.uint64(row) * _GOLDEN)
        if weighting != 3:
            for j in range(count):
                bits = mix(stream + (_NOISE_STREAM + np.uint64(j + 1)) * _GOLDEN)
                noise[j] = (np.float32(np.int32(bits >> np.uint64(41))) + np.float32(0.5)) * scale
            _log(noise, noise.view(np.int32), count)
            for j in range(count):
                noise[j] = -noise[j]
            _log(noise, noise.view(np.int32), count)
        for j in range(count):
            if not valid[j]:
                continue
            score = candidate_scores[i, j]
            if weighting == 3:
                keys[j] = score
                continue
            key = -noise[j]
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
            for j in range(count):
                order[j] = _ordered(order[j])
            scratch[0] = _ordered(_select(order, count, count - size))
            threshold = scratch.view(np.float32)[0]
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
