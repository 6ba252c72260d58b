"""What a traced step writes down on a GPU, in few small kernels: they stand between others' time.

The same as the plain path of :mod:`nscaching.training.tracing.counters` and
:mod:`nscaching.training.tracing.gradients`.
"""

from __future__ import annotations

from collections.abc import Iterable

import triton
import triton.language as tl
from torch import Tensor

from nscaching.sampling import Negatives

_BLOCK = 64
#: Gradient rows that a program multiplies before it adds to what all of them add to.
_ROWS = 16


@triton.jit
def _write_codes(
    entities,
    replaces_head,
    weight,
    scores,
    gradient,
    at,
    finished,
    codes,
    rows,
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
    here = tl.load(at)
    tl.store(codes + here * k + i, code, mask=inside)
    tl.debug_barrier()  # every thread has read `at`, not only the one that counts
    if tl.atomic_add(finished, 1) == tl.num_programs(0) - 1:  # all others have read `at`
        tl.store(at, here + rows)
        tl.store(finished, 0)


@triton.jit
def _add_products(ids, rows, summed, square, count, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = i < count
    row = tl.load(ids + i, mask=inside, other=0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    there = inside[:, None] & (d < width)[None, :]
    mine = tl.load(rows + i[:, None].to(tl.int64) * width + d[None, :], mask=there, other=0.0)
    whole = tl.load(summed + row[:, None] * width + d[None, :], mask=there, other=0.0)
    tl.atomic_add(square, tl.sum(tl.sum(mine * whole, axis=1), axis=0), sem="relaxed")


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
    finished: Tensor,
    codes: Tensor,
) -> None:
    """Write one number a negative from row ``at`` of ``codes`` on, and move ``at`` behind them.

    ``finished`` is a zero (int32) that is left as one.

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
        finished,
        codes,
        count,
        count * k,
        k,
        num_entities,
        least_score if least_score is not None else 0.0,
        width,
        by_score,
        _BLOCK,
        1 if by_score else triton.next_power_of_2(width),
    )


def add_norm(parts: Iterable[tuple[Tensor, Tensor, Tensor]], square: Tensor, sums: Tensor) -> None:
    """Add the norm of a gradient to ``sums``; for each table ids, rows, and the rows added up.

    ``square`` is a zero that is left as one.
    """
    for ids, rows, summed in parts:
        width = rows.shape[1]
        _add_products[(triton.cdiv(len(ids), _ROWS),)](
            ids.contiguous(), rows.contiguous(), summed, square, len(ids), width,
            _ROWS, triton.next_power_of_2(width),
        )  # fmt: skip
    _add_root[(1,)](square, sums, num_warps=1)
