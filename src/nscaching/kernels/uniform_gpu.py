"""Uniform negatives on a GPU in one kernel: draw, look the entity up, draw again where it is known.

Drawn with torch the same takes some eighty small kernels, more time than the rest of a step.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nscaching.kernels.cache_gpu import find, hashed, stream_of
from nscaching.kernels.constants import TRIES

_BLOCK = 128


@triton.jit
def _is_known(entity, offsets, answers, row, wanted, STEPS: tl.constexpr):
    low = tl.load(offsets + row, mask=wanted, other=0)
    stop = tl.load(offsets + row + 1, mask=wanted, other=0)
    return find(entity, answers, low, stop, wanted, STEPS)


@triton.jit
def _draw(
    seed,
    replaces_head,
    rows,
    head_offsets,
    head_answers,
    tail_offsets,
    tail_answers,
    entities,
    count,
    k,
    num_entities,
    TRIES: tl.constexpr,
    KNOWN: tl.constexpr,
    HEAD_STEPS: tl.constexpr,
    TAIL_STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    stream = stream_of(seed, place)
    entity = tl.zeros([BLOCK], dtype=tl.int64)
    wrong = inside
    if KNOWN:
        swap = tl.load(replaces_head + place // k, mask=inside, other=0) != 0
        row = tl.load(rows + place // k, mask=inside, other=0).to(tl.int64)
    left = TRIES
    draw = 0
    while left > 0:
        bits = hashed(stream, draw)
        drawn = (((bits >> 33) * tl.cast(num_entities, tl.uint64)) >> 31).to(tl.int64)
        entity = tl.where(wrong, drawn, entity)
        draw += 1
        left -= 1
        if KNOWN:
            of_head = _is_known(entity, head_offsets, head_answers, row, wrong & swap, HEAD_STEPS)
            of_tail = _is_known(
                entity, tail_offsets, tail_answers, row, wrong & (swap == 0), TAIL_STEPS
            )
            wrong = wrong & tl.where(swap, of_head, of_tail)
            if tl.max(wrong.to(tl.int32), axis=0) == 0:
                left = 0
        else:
            wrong = wrong & (place < 0)
            left = 0
    tl.store(entities + place, tl.where(wrong, -1, entity), mask=inside)


def draw_uniform(
    seed: Tensor, replaces_head: Tensor, rows: Tensor, known: Any, num_entities: int, count: int
) -> Tensor:
    """Do what :func:`nscaching.sampling.known.draw_uniform` says."""
    entities = torch.empty(len(rows), count, dtype=torch.int64, device=rows.device)
    lists = [seed] * 4
    steps = [0, 0]
    if known is not None:
        lists = [part for side in known for part in (side.offsets, side.answers)]
        steps = [side.longest.bit_length() for side in known]
    if entities.numel():
        _draw[(triton.cdiv(entities.numel(), _BLOCK),)](
            seed,
            replaces_head.contiguous(),
            rows.contiguous(),
            *lists,
            entities,
            entities.numel(),
            count,
            num_entities,
            TRIES,
            known is not None,
            *steps,
            _BLOCK,
        )
    return entities


@triton.jit
def _is_answer(
    rows, entities, offsets, answers, found, count, k, STEPS: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    entity = tl.load(entities + place, mask=inside, other=-1)
    row = tl.load(rows + place // k, mask=inside, other=0).to(tl.int64)
    tl.store(found + place, _is_known(entity, offsets, answers, row, inside, STEPS), mask=inside)


def is_answer(
    rows: Tensor, entities: Tensor, offsets: Tensor, answers: Tensor, longest: int
) -> Tensor:
    """Do what :func:`nscaching.sampling.known.is_answer` says."""
    found = torch.empty(entities.shape, dtype=torch.bool, device=entities.device)
    count = entities.numel()
    if count:
        _is_answer[(triton.cdiv(count, _BLOCK),)](
            rows.contiguous(),
            entities.contiguous(),
            offsets,
            answers,
            found,
            count,
            entities.shape[1],
            longest.bit_length(),
            _BLOCK,
        )
    return found
