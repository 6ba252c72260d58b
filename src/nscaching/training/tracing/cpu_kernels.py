"""The work of a trace on the CPU, each in one pass: what the torch beside it does in many."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from nscaching.kernels.llvm import prefetch

Array = np.ndarray[Any, Any]
#: Draws whose memory is on its way while others are counted.
_AHEAD = 8
_jit = njit(cache=True, nogil=True, error_model="numpy")


@_jit
def write_codes(
    entities: Array,
    replaces_head: Array,
    weight: Array,
    scores: Array,
    rows: Array,
    bound: float,
    by_score: bool,
    num_entities: int,
    codes: Array,
) -> None:
    """Write one number a negative, as ``NegativeCounters.write_down`` says. Shapes: (b, k).

    ``rows`` (b * k, width) are the gradients of the negatives, read where not ``by_score``.
    """
    for i in range(entities.shape[0]):
        for j in range(entities.shape[1]):
            bits = 1 if replaces_head[i, j] else 0
            if weight[i, j] > 0:
                teaches = by_score and scores[i, j] > bound
                if not by_score:
                    row = i * entities.shape[1] + j
                    for d in range(rows.shape[1]):
                        if rows[row, d] != 0:
                            teaches = True
                            break
                bits += 6 if teaches else 4
            codes[i, j] = entities[i, j] + bits * num_entities


@_jit
def count_draws(
    codes: Array,
    triples: Array,
    pair_rows: Array,
    first_tail: int,
    offsets: Array,
    answers: Array,
    kinds: Array,
    num_entities: int,
    place: Array,
    past: Array,
    now: Array,
    counts: Array,
) -> None:
    """Add up drawn, with a loss, followed, repeated, known and held out (6,) over draws in order.

    Shapes: codes (m, k); triples (m,) in training; pair_rows (2, all triples) head and tail rows;
    offsets (pairs + 1,), answers, kinds: the facts of each pair; place (all triples,), past (f, w)
    and now (f, k) of a ``RepeatWindow``.
    """
    for i in range(codes.shape[0]):
        if i + _AHEAD < codes.shape[0]:
            ahead = place[triples[i + _AHEAD]]
            if ahead >= 0:
                prefetch(past, ahead, 0)
                prefetch(past, ahead, 64)
        triple = triples[i]
        own = place[triple]
        for j in range(codes.shape[1]):
            entity, bits = codes[i, j] % num_entities, codes[i, j] // num_entities
            exists = bits >= 4
            if own >= 0:
                key = np.int32(codes[i, j] % (2 * num_entities))
                now[own, j] = key if exists else np.int32(-1)
                if exists:
                    again = False
                    for d in range(past.shape[1]):
                        again |= past[own, d] == key
                    counts[2] += 1
                    counts[3] += 1 if again else 0
            if not exists:
                continue
            counts[0] += 1
            counts[1] += (bits >> 1) & 1
            pair = pair_rows[0, triple] if bits & 1 else first_tail + pair_rows[1, triple]
            low, high = offsets[pair], offsets[pair + 1]
            while low < high:
                middle = (low + high) >> 1
                if answers[middle] < entity:
                    low = middle + 1
                else:
                    high = middle
            if low < offsets[pair + 1] and answers[low] == entity:
                counts[3 + kinds[low]] += 1


@njit(fastmath=True, cache=True, nogil=True, error_model="numpy")
def squared_norm(ids: Array, rows: Array, last: Array) -> float:
    """Return the squared l2 norm of the rows, those with the same id added up before.

    Shapes: ids (m,), rows (m, width); last (n,) is -1, before and after.
    """
    before = np.empty(ids.shape[0], dtype=np.int32)
    for i in range(ids.shape[0]):
        before[i] = last[ids[i]]
        last[ids[i]] = i
    whole = np.empty(rows.shape[1], dtype=np.float32)
    total = 0.0
    for i in range(ids.shape[0]):
        if last[ids[i]] != i:
            continue
        last[ids[i]] = -1
        for d in range(rows.shape[1]):
            whole[d] = rows[i, d]
        j = before[i]
        while j >= 0:
            for d in range(rows.shape[1]):
                whole[d] += rows[j, d]
            j = before[j]
        part = np.float32(0)
        for d in range(rows.shape[1]):
            part += whole[d] * whole[d]
        total += float(part)
    return total
