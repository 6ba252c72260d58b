"""Uniform candidates on the CPU in one loop: draw, look up, draw again where it is known.

And the look-up alone, of entities that came from elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from nscaching.kernels.cache_cpu import hashed, holds, stream_of
from nscaching.kernels.constants import TRIES
from nscaching.kernels.hashing import unsigned
from nscaching.kernels.numba_tools import Array, arrays, exact_parallel
from nscaching.kernels.threads import as_many_threads_as_pay

#: Numbers handled for one drawn entity, roughly.
_WORK = 8


@exact_parallel
def _draw(
    seed: np.uint64,
    replaces_head: Array,
    rows: Array,
    head_offsets: Array,
    head_answers: Array,
    tail_offsets: Array,
    tail_answers: Array,
    entities: Array,
    num_entities: int,
) -> None:
    k = entities.shape[1]
    for i in prange(entities.shape[0]):
        offsets = head_offsets if replaces_head[i] else tail_offsets
        answers = head_answers if replaces_head[i] else tail_answers
        start, stop = (offsets[rows[i]], offsets[rows[i] + 1]) if offsets.shape[0] > 0 else (0, 0)
        for j in range(k):
            stream = stream_of(seed, i * k + j)
            entities[i, j] = -1
            for draw in range(TRIES):
                bits = hashed(stream, draw) >> np.uint64(33)
                entity = int((bits * np.uint64(num_entities)) >> np.uint64(31))
                if not holds(answers, start, stop, entity):
                    entities[i, j] = entity
                    break


def draw_uniform(
    seed: Tensor, replaces_head: Tensor, rows: Tensor, known: Any, num_entities: int, count: int
) -> Tensor:
    """Do what :func:`nscaching.sampling.known.draw_uniform` says."""
    entities = torch.empty(len(rows), count, dtype=torch.int64)
    lists: list[Any] = [np.empty(0, np.int64), np.empty(0, np.int32)] * 2
    if known is not None:
        lists = [part.numpy() for side in known for part in (side.offsets, side.answers)]
    sides, asked = arrays(replaces_head, rows)
    with as_many_threads_as_pay(_WORK * entities.numel()):
        _draw(unsigned(seed), sides, asked, *lists, entities.numpy(), num_entities)
    return entities


@exact_parallel
def _is_answer(rows: Array, entities: Array, offsets: Array, answers: Array, found: Array) -> None:
    for i in prange(entities.shape[0]):
        start, stop = offsets[rows[i]], offsets[rows[i] + 1]
        for j in range(entities.shape[1]):
            found[i, j] = holds(answers, start, stop, entities[i, j])


def is_answer(
    rows: Tensor, entities: Tensor, offsets: Tensor, answers: Tensor, longest: int
) -> Tensor:
    """Do what :func:`nscaching.sampling.known.is_answer` says."""
    found = torch.empty(entities.shape, dtype=torch.bool)
    with as_many_threads_as_pay(_WORK * entities.numel()):
        _is_answer(*arrays(rows, entities, offsets, answers, found))
    return found
