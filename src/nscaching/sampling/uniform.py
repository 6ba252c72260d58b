"""Uniform candidates: drawn by hashing, drawn again where a known positive came up."""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.kernels.hashing import hashed_bits, to_entities
from nscaching.kernels.registry import register
from nscaching.sampling.known import KnownPositives

#: Draws for a candidate before it is given up.
TRIES = 17


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
    drawn: Tensor = _draw(seed, replaces_head, rows, known, num_entities, count)
    return drawn


def _plain_draw(
    seed: Tensor,
    replaces_head: Tensor,
    rows: Tensor,
    known: tuple[KnownPositives, KnownPositives] | None,
    num_entities: int,
    count: int,
) -> Tensor:
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


_draw = register(
    "draw_uniform", _plain_draw, cpu="uniform_cpu:draw_uniform", gpu="uniform_gpu:draw_uniform"
)
