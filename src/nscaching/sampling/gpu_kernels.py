"""Renewing cache rows on a GPU: what ``Cache.update`` does, as Triton kernels.

``offer`` puts together what a row holds and what it is offered; ``renew`` leaves out repeats and
known positives, rescales, adds the hashed noise and keeps the N1 largest in the order in which they
stood. One program a row; all comparisons within a row happen in registers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nscaching.sampling.hashing import GOLDEN, MIX_1, MIX_2, NOISE_STREAM
from nscaching.sampling.softmax import HIGH_QUANTILE, LOW_QUANTILE

_GOLDEN = tl.constexpr(GOLDEN)
_MIX_1 = tl.constexpr(MIX_1)
_MIX_2 = tl.constexpr(MIX_2)
_NOISE_STREAM = tl.constexpr(NOISE_STREAM)
_LOW = tl.constexpr(LOW_QUANTILE)
_HIGH = tl.constexpr(HIGH_QUANTILE)


@triton.jit
def _mix(bits):
    bits = (bits ^ (bits >> 30)) * _MIX_1
    bits = (bits ^ (bits >> 27)) * _MIX_2
    return bits ^ (bits >> 31)


@triton.jit
def _stream(seed, row):
    golden = tl.full([], _GOLDEN, tl.uint64)
    return _mix(tl.load(seed).to(tl.uint64, bitcast=True) + row.to(tl.uint64) * golden)


@triton.jit
def _offer(
    cache,
    rows,
    seed,
    keys,
    num_keys,
    candidates,
    num_entities,
    n1,
    n2,
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
        golden = tl.full([], _GOLDEN, tl.uint64)
        bits = _mix(_stream(seed, row) + (position + 1).to(tl.uint64) * golden)
        fresh = (((bits >> 33) * num_entities.to(tl.uint64)) >> 31).to(tl.int64)
    if KNOWN:
        key = row * num_entities + fresh
        low = tl.zeros([BLOCK], dtype=tl.int64)
        high = low + num_keys
        for _ in range(STEPS):
            middle = (low + high) // 2
            open_ = (low < high) & is_fresh
            smaller = tl.load(keys + middle, mask=open_, other=0) < key
            low = tl.where(open_ & smaller, middle + 1, low)
            high = tl.where(open_ & (smaller == 0), middle, high)
        at = tl.load(keys + low, mask=is_fresh & (low < num_keys), other=-1)
        fresh = tl.where(at == key, -1, fresh)
    kept = tl.where(j < n1, old.to(tl.int64), fresh)
    tl.store(candidates + i * (n1 + n2) + j, kept, mask=j < n1 + n2)


@triton.jit
def _order_statistic(ordered, position, place):
    return tl.sum(tl.where(position == place, ordered, 0.0), axis=0)


@triton.jit
def _quantile(ordered, position, last, q):
    place = last.to(tl.float32) * q
    below = tl.floor(place)
    low = _order_statistic(ordered, position, below.to(tl.int32))
    high = _order_statistic(ordered, position, tl.minimum(below.to(tl.int32) + 1, last))
    return low + (high - low) * (place - below)


@triton.jit
def _renew(
    cache,
    stored,
    rows,
    candidates,
    scores,
    seed,
    alpha,
    n1,
    k,
    WEIGHTING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + i).to(tl.int64)
    j = tl.arange(0, BLOCK)
    entity = tl.load(candidates + i * k + j, mask=j < k, other=-1).to(tl.int32)
    score = tl.load(scores + i * k + j, mask=j < k, other=0.0)
    earlier = j[None, :] < j[:, None]
    repeated = tl.sum(((entity[None, :] == entity[:, None]) & earlier).to(tl.int32), axis=1) > 0
    valid = (entity >= 0) & (repeated == 0)
    if WEIGHTING == 3:
        key = score
    else:
        golden = tl.full([], _GOLDEN, tl.uint64)
        bits = _mix(_stream(seed, row) + (j + 1 + _NOISE_STREAM).to(tl.uint64) * golden)
        uniform = ((bits >> 41).to(tl.float32) + 0.5) * 1.1920928955078125e-07
        key = -tl.log(-tl.log(uniform))
        if WEIGHTING == 1:
            key += alpha * score
        if WEIGHTING == 2:
            live = tl.sum(valid.to(tl.int32), axis=0)
            last = tl.maximum(live - 1, 0)
            ordered = tl.sort(tl.where(valid, score, float("inf")))
            ordered = tl.where(j <= last, ordered, 0.0)
            low = _quantile(ordered, j, last, _LOW)
            high = _quantile(ordered, j, last, _HIGH)
            spread = high - low
            inside = (score - low) / tl.where(spread > 0, spread, 1.0)
            inside = tl.minimum(tl.maximum(inside, 0.0), 1.0)
            key += alpha * tl.where(spread > 0, inside, (score > high).to(tl.float32))
    key = tl.where(valid, key, float("-inf"))
    ahead = (key[None, :] > key[:, None]) | ((key[None, :] == key[:, None]) & earlier)
    rank = tl.sum(ahead.to(tl.int32), axis=1)
    keep = valid & (rank < n1)
    place = tl.cumsum(keep.to(tl.int32), axis=0) - 1
    kept = tl.sum(keep.to(tl.int32), axis=0)
    tl.store(cache + row * n1 + place, entity, mask=keep)
    tl.store(stored + row * n1 + place, score, mask=keep)
    empty = (j >= kept) & (j < n1)
    tl.store(cache + row * n1 + j, tl.full([BLOCK], -1, tl.int32), mask=empty)
    tl.store(stored + row * n1 + j, tl.zeros([BLOCK], tl.float32), mask=empty)


def offer(
    cache: Tensor, rows: Tensor, count: int, num_entities: int, seed: Tensor, keys: Tensor | None
) -> Tensor:
    """Return what rows hold and are offered, -1 for padding and known positives: (b, N1 + N2)."""
    n1, n2 = cache.shape[1], min(count, num_entities)
    candidates = torch.empty(len(rows), n1 + n2, dtype=torch.int64, device=rows.device)
    _offer[(len(rows),)](
        cache,
        rows,
        seed,
        keys if keys is not None else rows,
        len(keys) if keys is not None else 0,
        candidates,
        num_entities,
        n1,
        n2,
        count >= num_entities,
        keys is not None,
        (len(keys).bit_length() + 1) if keys is not None else 0,
        triton.next_power_of_2(n1 + n2),
    )
    return candidates


def renew(
    cache: Tensor,
    stored: Tensor,
    rows: Tensor,
    candidates: Tensor,
    scores: Tensor,
    alpha: float,
    weighting: int,
    seed: Tensor,
) -> None:
    """Write the kept candidates and their scores into the rows of the cache."""
    k = candidates.shape[1]
    _renew[(len(rows),)](
        cache,
        stored,
        rows,
        candidates,
        scores,
        seed,
        alpha,
        cache.shape[1],
        k,
        weighting,
        triton.next_power_of_2(k),
    )
