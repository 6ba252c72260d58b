"""What a traced step writes down on a GPU, in few small kernels: they stand between others' time.

The same as the plain path of :mod:`nscaching.tracing.counters` and
:mod:`nscaching.tracing.gradients`.
"""

from __future__ import annotations

from collections.abc import Iterable

import triton
import triton.language as tl
from torch import Tensor

from nscaching.sampling import Negatives

_BLOCK = 64


@triton.jit
def _write_codes(
    entities,
    replaces_head,
    weight,
    scores,
    gradient,
    at,
    codes,
    count,
    k,
    num_entities,
    least_score,
    width: tl.constexpr,
    BY_SCORE: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    if BY_SCORE:
        teaches = tl.load(scores + i, mask=inside, other=0.0) > least_score
    else:
        d = tl.arange(0, WIDTH)
        there = inside[:, None] & (d < width)[None, :]
        place = i[:, None].to(tl.int64) * width + d[None, :]
        row = tl.load(gradient + place, mask=there, other=0.0)
        teaches = tl.max((row != 0.0).to(tl.int32), axis=1) > 0
    exists = tl.load(weight + i, mask=inside, other=0.0) > 0.0
    swap = tl.load(replaces_head + i, mask=inside, other=0) != 0
    bits = swap.to(tl.int64) + 2 * (teaches & exists).to(tl.int64) + 4 * exists.to(tl.int64)
    code = tl.load(entities + i, mask=inside, other=0) + bits * num_entities
    tl.store(codes + tl.load(at) * k + i, code, mask=inside)


@triton.jit
def _advance(at, count):
    tl.store(at, tl.load(at) + count)


@triton.jit
def _add_products(ids, rows, summed, square, width, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(ids + i).to(tl.int64)
    d = tl.arange(0, BLOCK)
    mine = tl.load(rows + i * width + d, mask=d < width, other=0.0)
    whole = tl.load(summed + row * width + d, mask=d < width, other=0.0)
    tl.atomic_add(square, tl.sum(mine * whole, axis=0), sem="relaxed")


@triton.jit
def _add_root(square, sums):
    tl.store(sums, tl.load(sums) + tl.sqrt(tl.maximum(tl.load(square), 0.0)))
    tl.store(sums + 1, tl.load(sums + 1) + 1.0)
    tl.store(square, 0.0)


def write_codes(
    negatives: Negatives,
    scores: Tensor,
    gradient: Tensor,
    least_score: float | None,
    num_entities: int,
    at: Tensor,
    codes: Tensor,
) -> None:
    """Write one number a negative from row ``at`` of ``codes`` on, and move ``at`` behind them.

    Without ``least_score`` a negative teaches where its ``gradient`` (b * k, width) is not zero.
    """
    count, k = negatives.entities.shape
    width = gradient.shape[1]
    by_score = least_score is not None
    _write_codes[(triton.cdiv(count * k, _BLOCK),)](
        negatives.entities.contiguous(),
        negatives.replaces_head.contiguous(),
        negatives.weight.contiguous(),
        scores.contiguous(),
        gradient.contiguous(),
        at,
        codes,
        count * k,
        k,
        num_entities,
        least_score if least_score is not None else 0.0,
        width,
        by_score,
        _BLOCK,
        1 if by_score else triton.next_power_of_2(width),
    )
    _advance[(1,)](at, count, num_warps=1)


def add_norm(parts: Iterable[tuple[Tensor, Tensor, Tensor]], square: Tensor, sums: Tensor) -> None:
    """Add the norm of a gradient to ``sums``; for each table ids, rows, and the rows added up.

    ``square`` is a zero that is left as one.
    """
    for ids, rows, summed in parts:
        width = rows.shape[1]
        _add_products[(len(ids),)](
            ids.contiguous(), rows.contiguous(), summed, square, width,
            triton.next_power_of_2(width), num_warps=1,
        )  # fmt: skip
    _add_root[(1,)](square, sums, num_warps=1)
