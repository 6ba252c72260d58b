"""Cache rows on the CPU: drawing from them, and what they are offered, as Numba loops.

What is kept of an offer is in :mod:`nscaching.sampling.keeping_kernels`. Compiled on first use and
kept on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

from nscaching.sampling.hashing import GOLDEN, MIX_1, MIX_2

Array = np.ndarray[Any, Any]

_GOLDEN, _MIX_1, _MIX_2 = np.uint64(GOLDEN), np.uint64(MIX_1), np.uint64(MIX_2)
#: Up to so many answers of a row are compared with all that is offered, which vectorises; where
#: there are more, each offered entity is looked up.
_FEW_ANSWERS = 200
_inline = njit(cache=True, nogil=True, error_model="numpy")


@_inline
def mix(bits: np.uint64) -> np.uint64:
    """Scramble 64 bits, as SplitMix64 does."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))


@_inline
def stream_of(seed: np.uint64, row: int) -> np.uint64:
    """Return where the random numbers of a row start."""
    return mix(seed + np.uint64(row) * _GOLDEN)


@_inline
def hashed(stream: np.uint64, position: int) -> np.uint64:
    """Return the 64 random bits at a position of a stream."""
    return mix(stream + np.uint64(position + 1) * _GOLDEN)


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

    The paper's eq-samp-neg with alpha2 = 0. Shapes: ids (all rows, N1); rows, relations (b,);
    entities, replaces_head, exists (b, k).
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


@_inline
def offer_row(
    held: Array,
    answers: Array,
    start: int,
    stop: int,
    num_entities: int,
    stream: np.uint64,
    offered: Array,
) -> None:
    """Fill in what a row holds and is offered, -1 for padding and known positives.

    The rest of ``offered`` (N1 + N2,) after ``held`` (N1,) are entities drawn by hashing, or all of
    them where N2 is their number. The known ones are ``answers[start:stop]``, ascending.
    """
    size = held.shape[0]
    fresh = offered[size:]  # indices from 0 on are known not to be negative: the loops vectorise
    for j in range(size):
        offered[j] = held[j]
    if fresh.shape[0] < num_entities:
        for j in range(fresh.shape[0]):
            bits = hashed(stream, j) >> np.uint64(33)
            fresh[j] = np.int64((bits * np.uint64(num_entities)) >> np.uint64(31))
    else:
        for j in range(fresh.shape[0]):
            fresh[j] = j
    if stop - start <= _FEW_ANSWERS:
        for place in range(start, stop):
            known = answers[place]
            for j in range(fresh.shape[0]):
                fresh[j] = np.int32(-1) if fresh[j] == known else fresh[j]
    else:
        for j in range(fresh.shape[0]):
            if holds(answers, start, stop, fresh[j]):
                fresh[j] = -1


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
    """Do :func:`offer_row` for many rows.

    Shapes: ids (all rows, N1); rows (b,); offered (b, N1 + N2); offsets (all rows + 1,) into
    answers, or (0,) for none.
    """
    for i in prange(rows.shape[0]):
        row = rows[i]
        start, stop = (offsets[row], offsets[row + 1]) if offsets.shape[0] > 0 else (0, 0)
        stream = stream_of(seed, row)
        offer_row(ids[row], answers, start, stop, num_entities, stream, offered[i])
