"""Renewing the cache rows of a batch on the CPU in one pass, for bilinear scoring functions.

A row's query, its offer, the scores from the bytes of a ``CompactTable`` and what is kept stay in
the nearest memory, and both sides of a batch are one loop. The pieces are those that work one after
the other where the scoring function is another one. Compiled on first use and kept on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

from nscaching.kernels.llvm import fetch_row
from nscaching.models.cpu_kernels import write_query
from nscaching.models.dot_kernels import dot_rows, fetch_rows
from nscaching.sampling.cpu_kernels import Array, offer_row, stream_of
from nscaching.sampling.keeping_kernels import BLOCK, keep_row, working_memory


@njit(cache=True, nogil=True, error_model="numpy")
def first_places(rows: Array, stamps: Array, number: int, places: Array) -> int:
    """Write the places in a batch where a row stands for the first time; return how many.

    ``stamps`` (all rows,) has the number of the last batch that a row stood in.
    Shapes: rows, places (b,).
    """
    count = 0
    for i in range(rows.shape[0]):
        places[count] = i
        count += 1 if stamps[rows[i]] != number else 0
        stamps[rows[i]] = number
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def _offer(
    ids: Array,
    offsets: Array,
    answers: Array,
    row: int,
    num_entities: int,
    seed: np.uint64,
    offered: Array,
) -> None:
    """Fill in what a row is offered."""
    start: Any = np.int64(0)
    stop: Any = np.int64(0)
    if offsets.shape[0] > 0:
        start, stop = offsets[row], offsets[row + 1]
    offer_row(ids[row], answers, start, stop, num_entities, stream_of(seed, row), offered)


@njit(parallel=True, cache=True, nogil=True, error_model="numpy")
def renew_from_bytes(
    places: Any,
    rows: Any,
    anchors: Any,
    relations: Array,
    ids: Any,
    scores: Any,
    offsets: Any,
    answers: Any,
    seeds: Array,
    entity: Array,
    relation: Array,
    values: Array,
    scale: Array,
    kind: int,
    candidates: int,
    alpha: float,
    weighting: int,
) -> None:
    """Renew the rows of a batch on both sides (alg-cache-update, eq:prupc).

    Pairs have the head's side first. Shapes: places (distinct rows,), of the batch; rows, anchors,
    relations (b,); ids, scores (all rows, N1), scores as the bits of float16; offsets (all rows +
    1,) into answers, or (0,) for none; seeds (2,); entity, values (n, width); relation (m, width);
    scale (n,). ``kind`` is the scoring function's, ``candidates`` is N2 or the number of entities,
    ``weighting`` one of those of :mod:`nscaching.sampling.cache`.
    """
    temperature = np.float32(alpha)
    heads = (places[0].shape[0] + BLOCK - 1) // BLOCK
    tails = (places[1].shape[0] + BLOCK - 1) // BLOCK
    for block in prange(heads + tails):
        tail = block >= heads
        place = places[1] if tail else places[0]
        row_of = rows[1] if tail else rows[0]
        anchor_of = anchors[1] if tail else anchors[0]
        side_ids = ids[1] if tail else ids[0]
        side_scores = scores[1] if tail else scores[0]
        side_offsets = offsets[1] if tail else offsets[0]
        side_answers = answers[1] if tail else answers[0]
        seed = seeds[1] if tail else seeds[0]
        width = side_ids.shape[1] + candidates
        memory = working_memory(width)
        offers = np.empty((2, width), dtype=np.int32)
        candidate_scores = np.empty(width, dtype=np.float32)
        query = np.empty(entity.shape[1], dtype=np.float32)
        first = np.int64(block - heads if tail else block) * BLOCK
        stop = min(place.shape[0], first + BLOCK)
        for i in range(first - 1, stop):
            coming = offers[(i + 1) & 1]
            if i >= first:
                at = place[i]
                row = row_of[at]
                offered = offers[i & 1]
                write_query(entity, relation, anchor_of[at], relations[at], query, kind, tail)
                dot_rows(query, values, offered, candidate_scores)
                for j in range(width):
                    candidate_scores[j] *= scale[max(offered[j], 0)]
            if i + 1 < stop:
                following = row_of[place[i + 1]]
                _offer(
                    side_ids, side_offsets, side_answers, following, entity.shape[0], seed, coming
                )
                later = place[min(i + 2, stop - 1)]
                fetch_row(side_ids, row_of[later])
                fetch_row(side_scores, row_of[later])
                fetch_row(entity, anchor_of[later])
                fetch_rows(values, coming)
            if i >= first:
                stream = stream_of(seed, row)
                keep_row(
                    offered, candidate_scores, temperature, weighting, stream, memory,
                    side_ids[row], side_scores[row],
                )  # fmt: skip
