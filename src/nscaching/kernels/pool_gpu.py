"""A pool of entities that the questions of a step share, on a GPU, as Triton kernels.

A pool has some thousand entities: comparing all pairs in registers takes less time than sorting
and searching, which are a chain of small kernels each.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nscaching.kernels.cache_gpu import at_place, hashed, in_order, stream_of

#: Entities of a program, and those that they are compared with at once.
_BLOCK, _CHUNK = 16, 128
#: Entities of a pool whose weights a program writes, and others that it compares them with.
_WEIGHTS, _OWN = 256, 16


@triton.jit
def _draw_pool(seed, ids, once, size, num_entities, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """Draw entities and write each at its place in ascending order, equal ones as they came."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    stream = stream_of(seed, tl.full([], 0, tl.int64))
    entities = tl.cast(num_entities, tl.uint64)
    own = (((hashed(stream, i) >> 33) * entities) >> 31).to(tl.int32)
    place = tl.zeros([BLOCK], tl.int32)
    before = tl.zeros([BLOCK], tl.int32)
    for start in range(0, size, CHUNK):
        j = start + tl.arange(0, CHUNK)
        other = (((hashed(stream, j) >> 33) * entities) >> 31).to(tl.int32)
        there = (j < size)[None, :]
        same = (other[None, :] == own[:, None]) & (j[None, :] < i[:, None]) & there
        smaller = (other[None, :] < own[:, None]) & there
        before += tl.sum(same.to(tl.int32), axis=1)
        place += tl.sum((same | smaller).to(tl.int32), axis=1)
    tl.store(ids + place, own.to(tl.int64), mask=i < size)
    tl.store(once + place, (before == 0).to(tl.float32), mask=i < size)


def draw_pool(seed: Tensor, size: int, num_entities: int) -> tuple[Tensor, Tensor]:
    """Do what :func:`nscaching.sampling.pool.draw_pool` says."""
    ids = torch.empty(size, dtype=torch.int64, device=seed.device)
    first = torch.empty(size, device=seed.device)
    _draw_pool[(triton.cdiv(size, _BLOCK),)](seed, ids, first, size, num_entities, _BLOCK, _CHUNK)
    return ids, first


@triton.jit
def _pool_weights(pool, weights, own, found, size, count, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    entity = tl.load(pool + j, mask=j < size, other=-1)
    among = tl.zeros([BLOCK], tl.int32)
    for start in range(0, count, CHUNK):
        c = start + tl.arange(0, CHUNK)
        other = tl.load(own + i * count + c, mask=c < count, other=-1)
        among += tl.sum((other[:, None] == entity[None, :]).to(tl.int32), axis=0)
    weight = tl.load(weights + j, mask=j < size, other=0.0)
    tl.store(found + i * size + j, tl.where(among > 0, 0.0, weight), mask=j < size)


def pool_weights(pool: Tensor, weights: Tensor, own: Tensor) -> Tensor:
    """Do what :func:`nscaching.sampling.pool.pool_weights` says."""
    (questions, count), size = own.shape, len(pool)
    found = torch.empty(questions, size, device=own.device)
    if questions:
        _pool_weights[(questions, triton.cdiv(size, _WEIGHTS))](
            pool, weights, own.contiguous(), found, size, count, _WEIGHTS, _OWN, num_warps=2
        )
    return found


@triton.jit
def _hardest(scores, weights, pool, ids, values, size, kept, stride, first, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    there = j < size
    score = tl.load(scores + i * stride + first + j, mask=there, other=float("-inf"))
    there = there & (tl.load(weights + i * size + j, mask=there, other=0.0) != 0)
    there = there & (score > float("-inf"))
    number = tl.where(there, in_order(score), 0)
    least = at_place(number, BLOCK - kept)
    more, as_least = there & (number > least), there & (number == least)
    room = kept - tl.sum(more.to(tl.int32), axis=0)
    taken = more | (as_least & (tl.cumsum(as_least.to(tl.int32), axis=0) <= room))
    place = tl.cumsum(taken.to(tl.int32), axis=0) - 1
    tl.store(ids + i * kept + place, tl.load(pool + j, mask=taken, other=-1), mask=taken)
    tl.store(values + i * kept + place, score, mask=taken)
    empty = (j >= tl.sum(taken.to(tl.int32), axis=0)) & (j < kept)
    tl.store(ids + i * kept + j, tl.full([BLOCK], -1, tl.int64), mask=empty)
    tl.store(values + i * kept + j, tl.full([BLOCK], float("-inf"), tl.float32), mask=empty)


def hardest(scores: Tensor, weights: Tensor, pool: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Do what :func:`nscaching.sampling.pool.hardest` says, with a row in registers."""
    ids = torch.empty(len(weights), size, dtype=torch.int64, device=scores.device)
    values = torch.empty(len(weights), size, device=scores.device)
    block = triton.next_power_of_2(max(1, len(pool)))
    if ids.numel():
        _hardest[(len(weights),)](
            scores, weights.contiguous(), pool, ids, values, len(pool), size, scores.stride(0),
            scores.shape[1] - len(pool), block, num_warps=max(1, min(8, block // 256)),
        )  # fmt: skip
    return ids, values
