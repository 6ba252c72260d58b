"""Updating cache rows on a GPU: what ``Cache.update`` does, as Triton kernels.

``offer`` lets one place of the batch own each row, so that a row that stands twice is updated once,
and puts together what a row holds and what it is offered; ``keep`` leaves out repeats, rescales,
adds the hashed noise and keeps the N1 largest in the order in which they stood. One program per
row, whose values are in registers. Repeats are found by comparing all pairs, a chunk of the row at
a time. The N1-th largest and the quantiles are found bit by bit, by counting what is below: 32
passes over a row however long it is, where comparing all pairs would take as many as it has values.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nscaching.kernels.constants import HIGH_QUANTILE, LARGEST_SCORE, LOW_QUANTILE
from nscaching.kernels.hashing import GOLDEN, MIX_1, MIX_2, NOISE_STREAM

_GOLDEN = tl.constexpr(GOLDEN)
_MIX_1 = tl.constexpr(MIX_1)
_MIX_2 = tl.constexpr(MIX_2)
_NOISE_STREAM = tl.constexpr(NOISE_STREAM)
_LOW = tl.constexpr(LOW_QUANTILE)
_HIGH = tl.constexpr(HIGH_QUANTILE)
_LARGEST = tl.constexpr(LARGEST_SCORE)
#: So many values of a row are compared with all of it at once; a warp takes so many of its places.
_CHUNK, _PLACES_OF_A_WARP, _MOST_WARPS = 16, 128, 4


@triton.jit
def _mix(bits):
    bits = (bits ^ (bits >> 30)) * _MIX_1
    bits = (bits ^ (bits >> 27)) * _MIX_2
    return bits ^ (bits >> 31)


@triton.jit
def stream_of(seed, row):
    """Return the stream of random bits that a row has."""
    golden = tl.full([], _GOLDEN, tl.uint64)
    return _mix(tl.load(seed).to(tl.uint64, bitcast=True) + row.to(tl.uint64) * golden)


@triton.jit
def hashed(stream, position):
    """Return the 64 random bits at a position of a stream."""
    golden = tl.full([], _GOLDEN, tl.uint64)
    return _mix(stream + (position + 1).to(tl.uint64) * golden)


@triton.jit
def _hashed_entities(seed, rows, entities, num_entities, count, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    bits = hashed(stream_of(seed, tl.load(rows + i).to(tl.int64)), j)
    drawn = (((bits >> 33) * tl.cast(num_entities, tl.uint64)) >> 31).to(tl.int64)
    tl.store(entities + i * count + j, drawn, mask=j < count)


@triton.jit
def _sample_rows(
    head_cache,
    tail_cache,
    head_rows,
    tail_rows,
    heads,
    tails,
    relations,
    head_probability,
    uniform,
    replaces_head,
    ids,
    exists,
    n1,
    k,
    BLOCK: tl.constexpr,
):
    """Draw a side and entities of its row: eq-samp-neg with alpha2 = 0."""
    i = tl.program_id(0).to(tl.int64)
    chance = tl.load(head_probability + tl.load(relations + i))
    swap = tl.load(uniform + i * (1 + k)) < chance
    row = tl.load(tl.where(swap, head_rows + i, tail_rows + i)).to(tl.int64)
    cache = tl.where(swap, head_cache, tail_cache) + row * n1
    d = tl.arange(0, BLOCK)
    held = tl.sum((tl.load(cache + d, mask=d < n1, other=-1) != -1).to(tl.int32), axis=0)
    tl.store(replaces_head + i, swap)
    tl.store(ids + i * (1 + k), tl.load(tl.where(swap, heads + i, tails + i)))
    for j in range(1, 1 + k):
        draw = tl.load(uniform + i * (1 + k) + j)
        place = tl.minimum((draw * held.to(tl.float32)).to(tl.int32), held - 1)
        drawn = tl.load(cache + tl.maximum(place, 0))
        tl.store(ids + i * (1 + k) + j, drawn.to(tl.int64))
        tl.store(exists + i * k + j - 1, (drawn != -1).to(tl.float32))


@triton.jit
def find(entity, answers, low, stop, wanted, STEPS: tl.constexpr):
    """Tell which wanted entities stand among the ascending answers between two places."""
    high = stop
    for _ in range(STEPS):
        middle = (low + high) // 2
        searching = wanted & (low < high)
        smaller = tl.load(answers + middle, mask=searching, other=0) < entity
        low = tl.where(searching & smaller, middle + 1, low)
        high = tl.where(searching & (smaller == 0), middle, high)
    return tl.load(answers + low, mask=wanted & (low < stop), other=-1) == entity


@triton.jit
def _claim(owner, rows, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    tl.store(owner + tl.load(rows + i, mask=inside, other=0), i, mask=inside)


@triton.jit
def _offer(
    cache,
    owner,
    rows,
    seed,
    offsets,
    answers,
    candidates,
    num_entities,
    sizes,
    share,
    n1,
    n2,
    PARTS: tl.constexpr,
    ALL: tl.constexpr,
    KNOWN: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + i).to(tl.int64)
    j = tl.arange(0, BLOCK)
    old = tl.load(cache + row * n1 + j, mask=j < n1, other=-1)
    position = j - n1
    is_fresh = (j >= n1) & (j < n1 + n2)
    if ALL:
        fresh = position.to(tl.int64)
    else:
        entities = tl.cast(num_entities, tl.int64)
        if PARTS:
            entities = tl.load(sizes + row // share)
        bits = hashed(stream_of(seed, row), position)
        fresh = (((bits >> 33) * tl.cast(entities, tl.uint64)) >> 31).to(tl.int64)
        if PARTS:
            every = tl.where(position < entities, position, -1).to(tl.int64)
            fresh = tl.where(n2 < entities, fresh, every)
    if KNOWN:
        start = tl.zeros([BLOCK], dtype=tl.int64) + tl.load(offsets + row)
        stop = tl.zeros([BLOCK], dtype=tl.int64) + tl.load(offsets + row + 1)
        fresh = tl.where(find(fresh, answers, start, stop, is_fresh, STEPS), -1, fresh)
    mine = tl.load(owner + row) == i
    kept = tl.where(mine, tl.where(j < n1, old.to(tl.int64), fresh), -1)
    tl.store(candidates + i * (n1 + n2) + j, kept, mask=j < n1 + n2)


@triton.jit
def in_order(values):
    """Return whole numbers from 1 on that are ordered as the values are."""
    bits = tl.where(values == 0, 0.0, values).to(tl.int32, bitcast=True)  # one zero
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.uint32, bitcast=True) ^ 0x80000000


@triton.jit
def at_place(numbers, place):
    """Return the number that stands at a place when they ascend, the first at 0."""
    found = tl.full([], 0, tl.uint32)
    for step in range(32):
        higher = found | (tl.full([], 1, tl.uint32) << (31 - step))
        below = tl.sum((numbers < higher).to(tl.int32), axis=0)
        found = tl.where(below <= place, higher, found)
    return found


@triton.jit
def _quantile(values, last, q):
    """Return a quantile between which eq:sigma rescales, of all values up to place ``last``."""
    numbers = in_order(values)
    place = last.to(tl.float32) * q
    below = tl.floor(place)
    number = at_place(numbers, below.to(tl.int32))
    low = tl.max(tl.where(numbers == number, values, float("-inf")), axis=0)
    next_above = tl.min(tl.where(numbers > number, values, float("inf")), axis=0)
    up_to_low = tl.sum((numbers <= number).to(tl.int32), axis=0)
    wanted = tl.minimum(below.to(tl.int32) + 1, last)
    high = tl.where(up_to_low > wanted, low, next_above)
    return low + (high - low) * (place - below)


@triton.jit
def _keep(
    cache,
    stored,
    owner,
    rows,
    candidates,
    scores,
    seed,
    alpha,
    n1,
    k,
    WEIGHTING: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Keep N1 of a row's candidates (alg-cache-update, eq:prupc)."""
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + i).to(tl.int64)
    if tl.load(owner + row) != i:  # another place of the batch updates this row
        return
    j = tl.arange(0, BLOCK)
    entity = tl.load(candidates + i * k + j, mask=j < k, other=-1).to(tl.int32)
    score = tl.load(scores + i * k + j, mask=j < k, other=0.0)
    repeated = tl.zeros([BLOCK], tl.int32)
    for start in range(0, k, CHUNK):
        c = start + tl.arange(0, CHUNK)
        other = tl.load(candidates + i * k + c, mask=c < k, other=-1).to(tl.int32)
        again = (other[:, None] == entity[None, :]) & (c[:, None] < j[None, :])
        repeated += tl.sum(again.to(tl.int32), axis=0)
    valid = (entity >= 0) & (repeated == 0) & (score == score)  # no score that is not a number
    if WEIGHTING == 3:
        key = score
    else:
        bits = hashed(stream_of(seed, row), j + _NOISE_STREAM)
        uniform = ((bits >> 41).to(tl.float32) + 0.5) * 1.1920928955078125e-07
        key = -tl.log(-tl.log(uniform))
        if WEIGHTING == 1:
            key += alpha * score
        if WEIGHTING == 2:
            last = tl.maximum(tl.sum(valid.to(tl.int32), axis=0) - 1, 0)
            rising = tl.where(valid, score, float("inf"))
            low = _quantile(rising, last, _LOW)
            high = _quantile(rising, last, _HIGH)
            spread = high - low
            inside = (score - low) / tl.where(spread > 0, spread, 1.0)
            inside = tl.minimum(tl.maximum(inside, 0.0), 1.0)
            key += alpha * tl.where(spread > 0, inside, (score > high).to(tl.float32))
    valid = valid & (key > float("-inf"))
    number = tl.where(valid, in_order(key), 0)
    least = at_place(number, BLOCK - n1)
    more, as_least = number > least, number == least
    room = n1 - tl.sum(more.to(tl.int32), axis=0)
    keep = valid & (more | (as_least & (tl.cumsum(as_least.to(tl.int32), axis=0) <= room)))
    place = tl.cumsum(keep.to(tl.int32), axis=0) - 1
    kept = tl.sum(keep.to(tl.int32), axis=0)
    tl.store(cache + row * n1 + place, entity, mask=keep)
    score = tl.minimum(tl.maximum(score, -_LARGEST), _LARGEST)
    tl.store(stored + row * n1 + place, score.to(tl.float16), mask=keep)
    empty = (j >= kept) & (j < n1)
    tl.store(cache + row * n1 + j, tl.full([BLOCK], -1, tl.int32), mask=empty)
    tl.store(stored + row * n1 + j, tl.zeros([BLOCK], tl.float16), mask=empty)


# The forms that the registry names ---------------------------------------------------------------


def hashed_entities(seed: Tensor, rows: Tensor, count: int, num_entities: int) -> Tensor:
    """Return uniform entity ids for each row, with replacement. Shape: (b, count)."""
    entities = torch.empty(len(rows), count, dtype=torch.int64, device=rows.device)
    block = min(256, triton.next_power_of_2(max(1, count)))
    if entities.numel():
        _hashed_entities[(len(rows), triton.cdiv(count, block))](
            seed, rows.contiguous(), entities, num_entities, count, block
        )
    return entities


def sample_rows(
    caches: tuple[Tensor, Tensor],
    rows: tuple[Tensor, Tensor],
    targets: tuple[Tensor, Tensor],
    chances: tuple[Tensor, Tensor],
    uniform: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Do what :func:`nscaching.sampling.nscaching.sample_rows` says."""
    count, width = uniform.shape
    device = uniform.device
    ids = torch.empty(count, width, dtype=torch.int64, device=device)
    replaces_head = torch.empty(count, dtype=torch.bool, device=device)
    exists = torch.empty(count, width - 1, device=device)
    n1 = caches[0].shape[1]
    if count:
        _sample_rows[(count,)](
            *caches,
            *(row.contiguous() for row in rows),
            *(target.contiguous() for target in targets),
            chances[0].contiguous(),
            chances[1],
            uniform,
            replaces_head,
            ids,
            exists,
            n1,
            width - 1,
            triton.next_power_of_2(n1),
            num_warps=1,
        )
    return replaces_head, ids, exists


def offer(rows: Tensor, cache: Any, count: int, seed: Tensor, known: Any) -> Tensor:
    """Return what rows hold and are offered: (b, N1 + N2).

    It is -1 for padding, for known positives, and for all of a row that another place owns.
    """
    rows, sizes, num_entities = rows.contiguous(), cache.sizes, cache.num_entities
    n1, n2 = cache.size, min(count, num_entities)
    candidates = torch.empty(len(rows), n1 + n2, dtype=torch.int64, device=rows.device)
    if not len(rows):
        return candidates
    _claim[(triton.cdiv(len(rows), 256),)](cache.owner, rows, len(rows), 256)
    _offer[(len(rows),)](
        cache.ids,
        cache.owner,
        rows,
        seed,
        rows if known is None else known.offsets,
        rows if known is None else known.answers,
        candidates,
        num_entities,
        rows if sizes is None else sizes,
        len(cache) if sizes is None else len(cache) // len(sizes),
        n1,
        n2,
        sizes is not None,
        sizes is None and count >= num_entities,
        known is not None,
        0 if known is None else known.longest.bit_length(),
        triton.next_power_of_2(n1 + n2),
    )
    return candidates


def keep(
    rows: Tensor, cache: Any, candidates: Tensor, scores: Tensor, alpha: float, seed: Tensor
) -> None:
    """Write the kept candidates and their scores into rows; only the place that owns one does."""
    k = candidates.shape[1]
    block = triton.next_power_of_2(k)
    temperature, weighting = cache.weighting(alpha)
    if not len(rows):
        return
    _keep[(len(rows),)](
        cache.ids,
        cache.scores,
        cache.owner,
        rows.contiguous(),
        candidates.contiguous(),
        scores.contiguous(),
        seed,
        temperature,
        cache.size,
        k,
        weighting,
        block,
        min(block, _CHUNK),
        num_warps=min(max(block // _PLACES_OF_A_WARP, 1), _MOST_WARPS),
    )
