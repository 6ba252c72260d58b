"""Known positives: which entities are no negatives of a row, because they make a training triple.

A pair (r, t) or (h, r) is a row; its known positives are the entities that complete it in training.
Uniform candidates are drawn by hashing, and drawn again where a known positive came up.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.kernels.constants import TRIES
from nscaching.kernels.hashing import hashed_bits, to_entities
from nscaching.kernels.registry import kernel


class Completions(Protocol):
    """Lists of entities, one per row: pairs of a knowledge graph, or neighbours of nodes."""

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Row i owns ``answers[offsets[i]:offsets[i + 1]]``."""

    @property
    def answers(self) -> npt.NDArray[np.int32]:
        """Ascending within a row."""


class KnownPositives:
    """The known positives of every row of one side: ascending ids between two offsets."""

    def __init__(self, known: Completions, num_entities: int, device: torch.device) -> None:
        self.num_entities = num_entities
        self.offsets = torch.from_numpy(known.offsets).to(device)
        self.answers = torch.from_numpy(known.answers).to(device)
        self.longest = int(np.diff(known.offsets).max(initial=0))

    def contains(self, rows: Tensor, entities: Tensor) -> Tensor:
        """Tell which entities are known positives of their row. Shapes: (b,), (b, k) -> (b, k)."""
        return is_answer(rows, entities, self.offsets, self.answers, self.longest)


@kernel(cpu="uniform_cpu", gpu="uniform_gpu")
def is_answer(
    rows: Tensor, entities: Tensor, offsets: Tensor, answers: Tensor, longest: int
) -> Tensor:
    """Tell which entities are among the ascending answers of their row, at most ``longest``.

    Shapes: (b,), (b, k), (rows + 1,), (m,) -> (b, k).
    """
    low, stop = offsets[rows].unsqueeze(1), offsets[rows + 1].unsqueeze(1)
    low, high = low.expand_as(entities), stop.expand_as(entities)
    if not len(answers):
        return torch.zeros_like(entities, dtype=torch.bool)
    last = len(answers) - 1
    for _ in range(longest.bit_length()):  # a binary search in each row
        middle = (low + high) // 2
        smaller = (answers[middle.clamp_max(last)] < entities) & (low < high)
        low, high = torch.where(smaller, middle + 1, low), torch.where(smaller, high, middle)
    return (low < stop) & (answers[low.clamp_max(last)] == entities)


def exclude_known(known: KnownPositives, rows: Tensor, ids: Tensor) -> Tensor:
    """Return ids with -1 in place of the known positives of their row. Shapes: (b,), (b, k)."""
    inside = rows.clamp_max(len(known.offsets) - 2)
    return ids.masked_fill(known.contains(inside, ids), -1)


@kernel(cpu="uniform_cpu", gpu="uniform_gpu")
def draw_uniform(
    seed: Tensor,
    replaces_head: Tensor,
    rows: Tensor,
    known: tuple[KnownPositives, KnownPositives] | None,
    num_entities: int,
    count: int,
) -> Tensor:
    """Return uniform entities that are no known positives, -1 where the tries were not enough.

    ``known`` are those for heads and for tails; ``rows`` are those of the asked side.
    Shapes: (q,), (q,) -> (q, count).
    """
    questions = len(rows)
    places = torch.arange(questions * count, device=rows.device)
    if known is None:
        return to_entities(hashed_bits(seed, places, 0, 1), num_entities).view(questions, count)
    draws = to_entities(hashed_bits(seed, places, 0, TRIES), num_entities)
    head, tail = (
        each.contains(rows.clamp_max(len(each.offsets) - 2), draws.view(questions, -1))
        for each in known
    )
    wrong = torch.where(replaces_head.unsqueeze(1), head, tail).view(-1, TRIES)
    first = (~wrong).to(torch.int8).argmax(1, keepdim=True)
    found = draws.gather(1, first).masked_fill(wrong.all(1, keepdim=True), -1)
    return found.view(questions, count)
