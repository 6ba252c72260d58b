"""Cache rows on the CPU: drawing from them, and what they are offered, as Numba loops.

What is kept of an offer is in :mod:`nscaching.kernels.keep_cpu`. Compiled on first use and
kept on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from nscaching.kernels.hashing import GOLDEN, MIX_1, MIX_2, unsigned
from nscaching.kernels.numba_tools import Array, arrays, exact_inline, exact_parallel
from nscaching.kernels.registry import KERNELS
from nscaching.kernels.threads import as_many_threads_as_pay

_GOLDEN, _MIX_1, _MIX_2 = np.uint64(GOLDEN), np.uint64(MIX_1), np.uint64(MIX_2)
#: Up to so many answers of a row are compared with all that is offered, which vectorises; where
#: there are more, each offered entity is looked up.
_FEW_ANSWERS = 200
#: Up to so many of the hardest are inserted one by one; of more a sort is faster.
_MOST_HARDEST = 64


@exact_inline
def mix(bits: np.uint64) -> np.uint64:
    """Scramble 64 bits, as SplitMix64 does."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))


@exact_inline
def stream_of(seed: np.uint64, row: int) -> np.uint64:
    """Return where the random numbers of a row start."""
    return mix(seed + np.uint64(row) * _GOLDEN)


@exact_inline
def hashed(stream: np.uint64, position: int) -> np.uint64:
    """Return the 64 random bits at a position of a stream."""
    return mix(stream + np.uint64(position + 1) * _GOLDEN)


@exact_inline
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


@exact_parallel
def _sample_rows(
    head_ids: Array,
    tail_ids: Array,
    head_rows: Array,
    tail_rows: Array,
    heads: Array,
    tails: Array,
    relations: Array,
    head_probability: Array,
    uniform: Array,
    replaces_head: Array,
    ids: Array,
    exists: Array,
) -> None:
    size = head_ids.shape[1]
    for i in prange(ids.shape[0]):
        swap = uniform[i, 0] < head_probability[relations[i]]
        cache = head_ids if swap else tail_ids
        row = head_rows[i] if swap else tail_rows[i]
        held = size
        while held > 0 and cache[row, held - 1] < 0:
            held -= 1
        replaces_head[i] = swap
        ids[i, 0] = heads[i] if swap else tails[i]
        for j in range(1, ids.shape[1]):
            place = min(int(uniform[i, j] * np.float32(held)), held - 1)
            ids[i, j] = cache[row, place] if held > 0 else -1
            exists[i, j - 1] = 1 if held > 0 else 0


@exact_inline
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
            fresh[j] = j if j < num_entities else -1
    if stop - start <= _FEW_ANSWERS:
        for place in range(start, stop):
            known = answers[place]
            for j in range(fresh.shape[0]):
                fresh[j] = np.int32(-1) if fresh[j] == known else fresh[j]
    else:
        for j in range(fresh.shape[0]):
            if holds(answers, start, stop, fresh[j]):
                fresh[j] = -1


@exact_parallel
def _offer_rows(
    ids: Array,
    rows: Array,
    offered: Array,
    offsets: Array,
    answers: Array,
    sizes: Array,
    seed: np.uint64,
) -> None:
    """Do :func:`offer_row` for many rows.

    Shapes: ids (all rows, N1); rows (b,); offered (b, N1 + N2); offsets (all rows + 1,) into
    answers, or (0,) for none; sizes (parts,), entities of each of the parts of the rows.
    """
    share = max(1, ids.shape[0] // sizes.shape[0])
    for i in prange(rows.shape[0]):
        row = rows[i]
        start, stop = (offsets[row], offsets[row + 1]) if offsets.shape[0] > 0 else (0, 0)
        stream = stream_of(seed, row)
        offer_row(ids[row], answers, start, stop, sizes[row // share], stream, offered[i])


@exact_inline
def _first_places(rows: Array, stamps: Array, number: int, places: Array) -> int:
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


# The forms that the registry names ---------------------------------------------------------------


def sample_rows(
    caches: tuple[Tensor, Tensor],
    rows: tuple[Tensor, Tensor],
    targets: tuple[Tensor, Tensor],
    chances: tuple[Tensor, Tensor],
    uniform: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Do what :func:`nscaching.sampling.nscaching.sample_rows` says."""
    ids = torch.empty(uniform.shape, dtype=torch.int64)
    replaces_head = torch.empty(len(uniform), dtype=torch.bool)
    exists = torch.empty(len(uniform), uniform.shape[1] - 1)
    tensors = (*caches, *rows, *targets, *chances, uniform, replaces_head, ids, exists)
    with as_many_threads_as_pay(ids.numel()):
        _sample_rows(*arrays(*tensors))
    return replaces_head, ids, exists


def offer(rows: Tensor, cache: Any, count: int, seed: Tensor, known: Any) -> Tensor:
    """Return what rows hold, then fresh entities; -1 for known positives. Shape: (b, N1 + N2)."""
    width = cache.size + min(count, cache.num_entities)
    offered = torch.empty(len(rows), width, dtype=torch.int64)
    offsets = torch.empty(0, dtype=torch.int64) if known is None else known.offsets
    answers = torch.empty(0, dtype=torch.int32) if known is None else known.answers
    sizes = torch.tensor([cache.num_entities]) if cache.sizes is None else cache.sizes
    tensors = arrays(cache.ids, rows, offered, offsets, answers, sizes)
    _offer_rows(*tensors, unsigned(seed))
    return offered


@exact_parallel
def _hardest(
    scores: Array, weights: Array, first: int, pool: Array, ids: Array, values: Array
) -> None:
    size = ids.shape[1]
    for question in prange(weights.shape[0]):
        kept, found = values[question], ids[question]  # in descending order
        kept[:] = -np.inf
        found[:] = -1
        lowest = kept[size - 1]
        for place in range(weights.shape[1]):
            score = scores[question, first + place]
            if not score > lowest or weights[question, place] == 0:
                continue
            at = size - 1
            while at > 0 and kept[at - 1] < score:
                kept[at], found[at] = kept[at - 1], found[at - 1]
                at -= 1
            kept[at], found[at] = score, pool[place]
            lowest = kept[size - 1]


def hardest(scores: Tensor, weights: Tensor, pool: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Do what :func:`nscaching.sampling.nscaching.hardest` says, in one pass over the scores."""
    if size > _MOST_HARDEST:
        return KERNELS["hardest"].plain(scores, weights, pool, size)
    ids = torch.empty(len(weights), size, dtype=torch.int64)
    values = torch.empty(len(weights), size)
    if size:
        first = scores.shape[1] - weights.shape[1]
        given, weighed, entities = arrays(scores, weights, pool)
        with as_many_threads_as_pay(weights.numel()):
            _hardest(given, weighed, first, entities, *arrays(ids, values))
    return ids, values


def first_places(rows: Tensor, stamps: Tensor, number: int) -> Tensor:
    """Do what :func:`nscaching.sampling.cache.first_places` says."""
    places = torch.empty_like(rows)
    found, seen, written = arrays(rows, stamps, places)
    return places[: _first_places(found, seen, number, written)]
