"""Uniform negatives on the CPU in one loop: draw, look the entity up, draw again where it is known.

The numbers are those of :mod:`nscaching.sampling.uniform_gpu`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from nscaching.kernels.threads import as_many_threads_as_pay
from nscaching.sampling.cpu_kernels import Array, hashed, holds, stream_of
from nscaching.sampling.hashing import unsigned
from nscaching.sampling.known import KnownAnswers

#: Numbers handled for one drawn entity, roughly.
_WORK = 8


@njit(parallel=True, cache=True, nogil=True, error_model="numpy")
def _draw(
    seed: np.uint64,
    replaces_head: Array,
    head_rows: Array,
    tail_rows: Array,
    head_offsets: Array,
    head_answers: Array,
    tail_offsets: Array,
    tail_answers: Array,
    entities: Array,
    proper: Array,
    num_entities: int,
    tries: int,
) -> None:
    k = entities.shape[1]
    for i in prange(entities.shape[0]):
        for j in range(k):
            swap = replaces_head[i, j]
            offsets, row = (head_offsets, head_rows[i]) if swap else (tail_offsets, tail_rows[i])
            answers = head_answers if swap else tail_answers
            start, stop = (offsets[row], offsets[row + 1]) if offsets.shape[0] > 0 else (0, 0)
            stream = stream_of(seed, i * k + j)
            known = True
            for draw in range(tries):
                bits = hashed(stream, draw) >> np.uint64(33)
                entity = int((bits * np.uint64(num_entities)) >> np.uint64(31))
                known = holds(answers, start, stop, entity)
                if not known:
                    break
            entities[i, j] = entity
            proper[i, j] = not known


def draw_uniform(
    seed: Tensor,
    replaces_head: Tensor,
    rows: tuple[Tensor, Tensor],
    known: tuple[KnownAnswers, KnownAnswers] | None,
    num_entities: int,
    tries: int,
) -> tuple[Tensor, Tensor]:
    """Return uniform entities, and which are no known answers. Shapes: (b, k).

    ``rows`` are those of the head and the tail of each positive, (b,); ``tries`` bounds the draws.
    """
    entities = torch.empty(replaces_head.shape, dtype=torch.int64)
    proper = torch.empty(replaces_head.shape, dtype=torch.bool)
    lists: list[Any] = [np.empty(0, np.int64), np.empty(0, np.int32)] * 2
    if known is not None:
        lists = [part.numpy() for side in known for part in (side.offsets, side.answers)]
    sides = replaces_head.contiguous().numpy()
    kernel: Any = _draw
    with as_many_threads_as_pay(_WORK * entities.numel()):
        kernel(
            unsigned(seed),
            sides,
            *(part.numpy() for part in rows),
            *lists,
            entities.numpy(),
            proper.numpy(),
            num_entities,
            tries,
        )
    return entities, proper
