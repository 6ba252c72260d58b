"""Updating the cache rows of a batch on the CPU in one pass, from an int8 copy of the table.

What a row is offered, its scores and what is kept stay in the nearest memory, and both sides of a
batch are one loop. The pieces are those that work one after the other elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from nscaching.kernels.cache_cpu import offer_row, stream_of
from nscaching.kernels.int8_cpu import dot_rows, fetch_rows
from nscaching.kernels.keep_cpu import BLOCK, keep_row, working_memory
from nscaching.kernels.numba_tools import Array, exact_inline, exact_parallel, fetch_row


@exact_inline
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


@exact_parallel
def update_from_int8(
    places: Any,
    rows: Any,
    queries: Any,
    ids: Any,
    scores: Any,
    offsets: Any,
    answers: Any,
    seeds: Array,
    values: Array,
    scale: Array,
    parts: Array,
    candidates: int,
    alpha: float,
    weighting: int,
) -> None:
    """Update the rows of a batch on both sides (alg-cache-update, eq:prupc).

    Pairs have the head's side first. Shapes: places (distinct rows,), of the batch; rows (b,);
    queries (b, q); ids, scores (all rows, N1), scores as the bits of float16; offsets (all rows +
    1,) into answers, or (0,) for none; seeds (2,); values (n, q); scale (n,). ``candidates`` is N2
    or the number of entities, ``weighting`` one of those of :mod:`nscaching.sampling.cache`.

    The rows are in as many equal parts as ``parts`` (parts, 2) says: the entities of a part begin
    at a row of the table, and there are so many. Places and rows may then stand for a batch once
    per part, whose queries are there once.
    """
    temperature = np.float32(alpha)
    heads = (places[0].shape[0] + BLOCK - 1) // BLOCK
    tails = (places[1].shape[0] + BLOCK - 1) // BLOCK
    for block in prange(heads + tails):
        tail = block >= heads
        place = places[1] if tail else places[0]
        row_of = rows[1] if tail else rows[0]
        query_of = queries[1] if tail else queries[0]
        side_ids = ids[1] if tail else ids[0]
        side_scores = scores[1] if tail else scores[0]
        side_offsets = offsets[1] if tail else offsets[0]
        side_answers = answers[1] if tail else answers[0]
        seed = seeds[1] if tail else seeds[0]
        width = side_ids.shape[1] + candidates
        memory = working_memory(width)
        offers = np.empty((2, width), dtype=np.int32)
        candidate_scores = np.empty(width, dtype=np.float32)
        share = max(1, side_ids.shape[0] // parts.shape[0])
        count = query_of.shape[0]
        first = np.int64(block - heads if tail else block) * BLOCK
        stop = min(place.shape[0], first + BLOCK)
        for i in range(first - 1, stop):
            coming = offers[(i + 1) & 1]
            if i >= first:
                at = place[i]
                row = row_of[at]
                offered = offers[i & 1]
                start = parts[row // share, 0]
                dot_rows(query_of[at % count], values[start:], offered, candidate_scores)
                scales = scale[start:]
                for j in range(width):
                    candidate_scores[j] *= scales[max(offered[j], 0)]
            if i + 1 < stop:
                following = row_of[place[i + 1]]
                begin, size = parts[following // share]
                _offer(side_ids, side_offsets, side_answers, following, size, seed, coming)
                later = place[min(i + 2, stop - 1)]
                fetch_row(side_ids, row_of[later])
                fetch_row(side_scores, row_of[later])
                fetch_row(query_of, later % count)
                fetch_rows(values[begin:], coming)
            if i >= first:
                stream = stream_of(seed, row)
                keep_row(
                    offered, candidate_scores, temperature, weighting, stream, memory,
                    side_ids[row], side_scores[row],
                )  # fmt: skip
