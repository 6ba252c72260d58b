"""What a cache row keeps of an offer on the CPU: what ``Cache.keep`` does, as a Numba loop.

For each row: leave out repeats, rescale the scores, add hashed Gumbel noise, keep the N1 largest in
the order in which they stood. Compiled on first use and kept on disk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from nscaching.kernels.cache_cpu import mix, stream_of
from nscaching.kernels.constants import HIGH_QUANTILE, LARGEST_SCORE, LOW_QUANTILE
from nscaching.kernels.hashing import GOLDEN, NOISE_STREAM, unsigned
from nscaching.kernels.numba_tools import (
    Array,
    arrays,
    bits_of,
    exact_inline,
    exact_parallel,
    float_of,
    to_half,
)

_GOLDEN, _NOISE_STREAM = np.uint64(GOLDEN), np.uint64(NOISE_STREAM)
#: Times that a bound is guessed before floats are halved.
_GUESSES = 15
#: Rows updated one after the other with the same working memory.
BLOCK = 32
_INFINITE = np.float32(np.inf)
_LEAST, _MOST = np.int32(-(2**31)), np.int32(2**31 - 1)


@exact_inline
def _ordered(bits: Any) -> Any:
    """Map the bits of a float to an int32 that sorts as the float does, and back."""
    return bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))


@exact_inline
def _as_number(number: Any) -> Any:
    """Map a float to an int32 that sorts as it does: loops for the largest vectorise over those."""
    return _ordered(bits_of(number))


@exact_inline
def _as_float(number: Any) -> Any:
    return float_of(_ordered(number))


@exact_inline
def _count_up_to(values: Array, length: int, bound: Any) -> Any:
    count = np.int32(0)
    for j in range(length):
        count = np.int32(count + np.int32(values[j] <= bound))  # a plain sum is an int64
    return np.float32(count)


@exact_inline
def _split(values: Array, length: int, count: int) -> Any:
    """Return a bound with ``count`` of the numbers at or below it, or the nearest that ties allow.

    By narrowing it down between the smallest and the largest: counting vectorises, and it ends as
    soon as the bound falls between two neighbours. With ties the result is the number that is tied.
    Minus infinity may be among the numbers, but less than ``count`` times.
    """
    least, most = _MOST, _LEAST
    nothing = _as_number(-_INFINITE)
    for j in range(length):
        number = _as_number(values[j])
        least = min(least, number if number > nothing else _MOST)
        most = max(most, number)
    low, high = _as_float(least), _as_float(most)
    if count >= length:
        return high
    below, upto, wanted = np.float32(0), np.float32(length), np.float32(count)
    for _ in range(_GUESSES):  # where the count would be reached if numbers lay evenly
        bound = low + (high - low) * ((wanted + np.float32(0.5) - below) / (upto - below))
        found = _count_up_to(values, length, bound)
        if found == wanted:
            return bound
        if found > wanted:
            high, upto = bound, found
        else:
            low, below = bound, found
    least, most = _as_number(low), _as_number(high)
    while least < most:  # ties, or numbers far from even: halve what is left of all floats
        middle = np.int32((np.int64(least) + np.int64(most)) >> 1)
        found = _count_up_to(values, length, _as_float(middle))
        if found == wanted:
            return _as_float(middle)
        if found > wanted:
            most = middle
        else:
            least = np.int32(middle + 1)
    return _as_float(least)


@exact_inline
def _quantile(values: Array, length: int, q: float) -> Any:
    """Return the q-quantile of numbers, with linear interpolation."""
    place = np.float32((length - 1) * q)
    below = math.floor(place)
    bound = _split(values, length, below + 1)
    low, high = _LEAST, _MOST
    count = np.int32(0)
    for j in range(length):
        inside = values[j] <= bound
        number = _as_number(values[j])
        count = np.int32(count + np.int32(inside))
        low = max(low, number if inside else _LEAST)
        high = min(high, _MOST if inside else number)
    if count > below + 1 or place == below:
        high = low
    start, stop = _as_float(low), _as_float(high)
    return start + (stop - start) * np.float32(place - below)


@njit(fastmath={"contract", "reassoc"}, cache=True, nogil=True, error_model="numpy")
def _log(number: Any) -> Any:
    """Take the logarithm of a positive normal float.

    A polynomial (Cephes' logf) that vectorises, unlike a call; within 2 ulp.
    """
    whole = bits_of(number)
    exponent = np.float32((whole >> np.int32(23)) - np.int32(126))
    x = float_of((whole & np.int32(0x007FFFFF)) | np.int32(0x3F000000))
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
    return x + y + np.float32(0.693359375) * exponent


@exact_inline
def _mark_distinct(candidates: Array, seen: Array, valid: Array) -> None:
    """Mark the first place of each entity that may enter.

    ``seen`` is a hash table with several times as many places as there are candidates, a power of
    two.
    """
    seen[:] = -1
    last = seen.shape[0] - 1
    for j in range(candidates.shape[0]):
        entity = np.int32(candidates[j])
        valid[j] = False
        if entity < 0:
            continue
        slot = (np.int64(entity) * 2654435761) & last
        while seen[slot] != -1 and seen[slot] != entity:
            slot = (slot + 1) & last
        if seen[slot] == -1:
            seen[slot] = entity
            valid[j] = True


@exact_inline
def _gumbel(stream: np.uint64, noise: Array) -> None:
    """Fill in the negative of the standard Gumbel noise of a row."""
    scale = np.float32(2.0**-23)
    for j in range(noise.shape[0]):
        bits = mix(stream + (_NOISE_STREAM + np.uint64(j + 1)) * _GOLDEN)
        uniform = (np.float32(np.int32(bits >> np.uint64(41))) + np.float32(0.5)) * scale
        noise[j] = _log(-_log(uniform))


@exact_inline
def _rescaling(scores: Array, valid: Array, order: Array) -> tuple[Any, Any]:
    """Return the quantiles that become 0 and 1 in eq:sigma; equal ones with nothing to rescale."""
    live = 0
    for j in range(scores.shape[0]):
        order[live] = scores[j]
        live += 1 if valid[j] & (scores[j] == scores[j]) else 0
    if live == 0:
        return np.float32(0), np.float32(0)
    low = np.float32(_quantile(order, live, LOW_QUANTILE))
    return low, np.float32(_quantile(order, live, HIGH_QUANTILE))


@exact_inline
def _weigh(
    scores: Array,
    noise: Array,
    weighting: int,
    temperature: Any,
    low: Any,
    high: Any,
    keys: Array,
) -> None:
    """Fill in the logarithm of sigma (eq:sigma) plus Gumbel noise. One short loop per case."""
    if weighting == 3:
        for j in range(keys.shape[0]):
            keys[j] = scores[j]
    elif weighting == 0:
        for j in range(keys.shape[0]):
            keys[j] = -noise[j]
    elif weighting == 1:
        for j in range(keys.shape[0]):
            keys[j] = temperature * scores[j] - noise[j]
    elif high > low:
        for j in range(keys.shape[0]):
            scaled = min(max((scores[j] - low) / (high - low), np.float32(0)), np.float32(1))
            keys[j] = temperature * scaled - noise[j]
    else:
        for j in range(keys.shape[0]):
            keys[j] = (temperature if scores[j] > high else np.float32(0)) - noise[j]


@exact_inline
def working_memory(count: int) -> Any:
    """Return what :func:`keep_row` writes on the way, for rows of ``count`` candidates."""
    slots = 16
    while slots < 4 * count:
        slots *= 2
    return (
        np.empty(slots, dtype=np.int32),
        np.empty((2, count), dtype=np.bool_),
        np.empty((3, count), dtype=np.float32),
        np.empty(count, dtype=np.float32),
    )


@exact_inline
def keep_row(
    candidates: Array,
    candidate_scores: Array,
    temperature: Any,
    weighting: int,
    stream: np.uint64,
    memory: Any,
    ids: Array,
    scores: Array,
) -> None:
    """Write what is kept of a row's candidates, and their scores, into the row (eq:prupc).

    Shapes: candidates, candidate_scores (k,) with -1 for what may not enter; ids, scores (N1,),
    scores as the bits of float16. ``weighting`` is one of those of :mod:`nscaching.sampling.cache`,
    ``memory`` that of :func:`working_memory`.
    """
    seen, flags, numbers, order = memory
    valid, taken = flags[0], flags[1]
    noise, keys, work = numbers[0], numbers[1], numbers[2]
    size, count = ids.shape[0], candidates.shape[0]
    _mark_distinct(candidates, seen, valid)
    low, high = np.float32(0), np.float32(0)
    if weighting == 2:
        low, high = _rescaling(candidate_scores, valid, order)
    if weighting != 3:
        _gumbel(stream, noise)
    _weigh(candidate_scores, noise, weighting, temperature, low, high, keys)
    live = np.int32(0)
    for j in range(count):
        # NaN, of a model that diverges, does not
        enters = valid[j] & (keys[j] == keys[j]) & (candidate_scores[j] == candidate_scores[j])
        keys[j] = keys[j] if enters else -_INFINITE
        live = np.int32(live + np.int32(enters))
    threshold = -_INFINITE
    if live > size:
        threshold = _split(keys, count, count - size)  # the kept keys are above, or tied with it
    above = np.int32(0)
    for j in range(count):
        taken[j] = keys[j] > threshold
        above = np.int32(above + np.int32(keys[j] > threshold))
    ties = min(size, live) - above
    for j in range(count if ties > 0 else 0):
        if keys[j] == threshold and ties > 0 and threshold > -_INFINITE:
            taken[j] = True
            ties -= 1
    written = np.uint64(0)  # an index that cannot be negative is not looked at
    for j in range(count):
        seen[written] = candidates[j]
        work[written] = candidate_scores[j]
        written += np.uint64(taken[j])
    held = np.int64(written)
    for j in range(held):
        score = work[j]
        score = np.float32(LARGEST_SCORE) if score > LARGEST_SCORE else score
        score = np.float32(-LARGEST_SCORE) if score < -LARGEST_SCORE else score
        ids[j] = seen[j]
        scores[j] = to_half(score)
    for j in range(held, size):
        ids[j] = -1
        scores[j] = np.uint16(0)


@exact_parallel
def _keep_rows(
    ids: Array,
    scores: Array,
    rows: Array,
    candidates: Array,
    candidate_scores: Array,
    alpha: float,
    weighting: int,
    seed: np.uint64,
) -> None:
    """Do :func:`keep_row` for many rows.

    Shapes: ids, scores (all rows, N1), scores as the bits of float16; rows (b,); candidates,
    candidate_scores (b, k).
    """
    temperature = np.float32(alpha)
    for block in prange((rows.shape[0] + BLOCK - 1) // BLOCK):
        memory = working_memory(candidates.shape[1])
        for i in range(block * BLOCK, min(rows.shape[0], (block + 1) * BLOCK)):
            row = rows[i]
            stream = stream_of(seed, row)
            keep_row(
                candidates[i], candidate_scores[i], temperature, weighting, stream, memory,
                ids[row], scores[row],
            )  # fmt: skip


def keep(
    rows: Tensor, cache: Any, candidates: Tensor, scores: Tensor, alpha: float, seed: Tensor
) -> None:
    """Write the kept candidates and their scores into rows. Shapes: (b,), (b, k), (b, k)."""
    bits = cache.scores.view(torch.uint16)
    tensors = arrays(cache.ids, bits, rows, candidates, scores)
    _keep_rows(*tensors, *cache.weighting(alpha), unsigned(seed))
