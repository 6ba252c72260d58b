"""Matches on a GPU: forward and backward fused with the gather, as Triton kernels.

Forward: a program scores a block of the candidates of one query; the table's rows go straight from
memory into registers. Backward: a program has one query and goes over its candidates, in blocks,
so that the gradient of the query is added up in registers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Candidates and numbers of a row that one warp takes at once: the fastest of 54 tilings on an
#: H200. Of a bfloat16 table with wide rows it takes more candidates.
_BLOCK_K, _WIDE_BLOCK_K, _MAX_BLOCK_D, _WARPS = 8, 32, 512, 1
_TINY = tl.constexpr(1e-12)


@triton.jit
def _dot_forward(
    query, places, table, ids, scores, k,
    width: tl.constexpr, stride: tl.constexpr, PLACED: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    own = i
    if PLACED:
        own = tl.load(places + i)
    j = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = j < k
    entity = tl.load(ids + i * k + j, mask=inside, other=-1)
    total = tl.zeros([BLOCK_K], dtype=tl.float32)
    if tl.max(entity, axis=0) >= 0:
        row = tl.maximum(entity, 0).to(tl.int64) * stride
        for start in range(0, width, BLOCK_D):
            d = start + tl.arange(0, BLOCK_D)
            q = tl.load(query + own * width + d, mask=d < width, other=0.0)
            x = tl.load(
                table + row[:, None] + d[None, :],
                mask=inside[:, None] & (d < width)[None, :],
                other=0.0,
            )
            total += tl.sum(q[None, :] * x, axis=1)
    tl.store(scores + i * k + j, tl.where(entity >= 0, total, float("-inf")), mask=inside)


@triton.jit
def _dot_backward(
    query, places, table, ids, d_scores, d_query, rows, k,
    width: tl.constexpr, stride: tl.constexpr, PLACED: tl.constexpr, WRITTEN: tl.constexpr,
    SUMMED: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write gradients of candidates into ``rows``; ``SUMMED``: add them to those of a table."""
    i = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    there = d < width
    if WRITTEN:
        own = i
        if PLACED:
            own = tl.load(places + i)
        q = tl.load(query + own * width + d, mask=there, other=0.0)
    total = tl.zeros([BLOCK_D], dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        j = start + tl.arange(0, BLOCK_K)
        entity = tl.load(ids + i * k + j, mask=j < k, other=-1)
        slope = tl.load(d_scores + i * k + j, mask=(j < k) & (entity >= 0), other=0.0)
        row = tl.maximum(entity, 0).to(tl.int64) * stride
        inside = j < k
        if SUMMED:
            inside = (j < k) & (entity >= 0)
        both = inside[:, None] & there[None, :]
        place = row[:, None] + d[None, :]
        x = tl.load(table + place, mask=both, other=0.0)
        total += tl.sum(slope[:, None] * x, axis=0)
        if WRITTEN:
            if SUMMED:
                tl.atomic_add(rows + place, slope[:, None] * q[None, :], mask=both, sem="relaxed")
            else:
                place = (i * k + j)[:, None] * stride + d[None, :]
                tl.store(rows + place, slope[:, None] * q[None, :], mask=both)
    tl.store(d_query + i * width + d, total, mask=there)


@triton.jit
def _view_of(
    table, row, context, i, inside, dim: tl.constexpr, VIEW: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Return scale and shift: the view of an entity is ``scale x + shift context``."""
    scale = tl.full([BLOCK_K], 1.0, tl.float32)
    shift = tl.zeros([BLOCK_K], dtype=tl.float32)
    if VIEW != 0:
        square = tl.zeros([BLOCK_K], dtype=tl.float32)
        for start in range(0, dim, BLOCK_D):
            d = start + tl.arange(0, BLOCK_D)
            there = inside[:, None] & (d < dim)[None, :]
            x = tl.load(table + row[:, None] + d[None, :], mask=there, other=0.0).to(tl.float32)
            square += tl.sum(x * x, axis=1)
            if VIEW == 2:
                w = tl.load(context + i * dim + d, mask=d < dim, other=0.0)
                shift -= tl.sum(w[None, :] * x, axis=1)
            if VIEW == 3:
                own = tl.load(table + row[:, None] + dim + d[None, :], mask=there, other=0.0).to(
                    tl.float32
                )
                shift += tl.sum(own * x, axis=1)
        scale = 1.0 / tl.maximum(tl.sqrt(square), _TINY)
        shift = shift * scale
    return scale, shift


@triton.jit
def _distance_forward(
    query, context, table, ids, scores, k,
    dim: tl.constexpr, stride: tl.constexpr, NORM: tl.constexpr, VIEW: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write negative distances; those of ``NORM`` 0 are sums of moduli of [re, im]."""
    i = tl.program_id(0).to(tl.int64)
    own = query + i * dim
    if NORM == 0:
        own = query + i * 2 * dim
    j = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = j < k
    entity = tl.load(ids + i * k + j, mask=inside, other=-1)
    total = tl.zeros([BLOCK_K], dtype=tl.float32)
    if tl.max(entity, axis=0) >= 0:
        row = tl.maximum(entity, 0).to(tl.int64) * stride
        scale, shift = _view_of(table, row, context, i, inside, dim, VIEW, BLOCK_K, BLOCK_D)
        for start in range(0, dim, BLOCK_D):
            d = start + tl.arange(0, BLOCK_D)
            there = inside[:, None] & (d < dim)[None, :]
            x = tl.load(table + row[:, None] + d[None, :], mask=there, other=0.0).to(tl.float32)
            q = tl.load(own + d, mask=d < dim, other=0.0)
            gap = q[None, :] - scale[:, None] * x
            if VIEW >= 2:
                w = tl.load(context + i * dim + d, mask=d < dim, other=0.0)
                gap -= shift[:, None] * w[None, :]
            if NORM == 0:
                q_im = tl.load(own + dim + d, mask=d < dim, other=0.0)
                im = q_im[None, :] - tl.load(
                    table + row[:, None] + d[None, :] + dim, mask=there, other=0.0
                )
                total += tl.sum(tl.where(there, tl.sqrt(gap * gap + im * im), 0.0), axis=1)
            elif NORM == 1:
                total += tl.sum(tl.abs(gap), axis=1)
            else:
                total += tl.sum(gap * gap, axis=1)
        if NORM == 2:
            total = tl.sqrt(total)
    tl.store(scores + i * k + j, tl.where(entity >= 0, -total, float("-inf")), mask=inside)


@triton.jit
def _give(place, value, there, SUMMED: tl.constexpr):
    """Write a gradient, or add it to what is there."""
    if SUMMED:
        tl.atomic_add(place, value, mask=there, sem="relaxed")
    else:
        tl.store(place, value, mask=there)


@triton.jit
def _distance_backward(
    query, context, table, ids, d_scores, d_query, d_context, rows, k,
    dim: tl.constexpr, stride: tl.constexpr, NORM: tl.constexpr, VIEW: tl.constexpr,
    SUMMED: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write gradients of candidates into ``rows``; ``SUMMED``: add them to those of a table."""
    i = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    there = d < dim
    q = tl.load(query + i * dim + d, mask=there, other=0.0)
    w = tl.load(context + i * dim + d, mask=there & (VIEW >= 2), other=0.0)
    of_query = tl.zeros([BLOCK_D], dtype=tl.float32)
    of_context = tl.zeros([BLOCK_D], dtype=tl.float32)
    for j in range(k):
        entity = tl.load(ids + i * k + j).to(tl.int64)
        slope = tl.load(d_scores + i * k + j)
        slope = tl.where(entity >= 0, slope, 0.0)
        row = table + tl.maximum(entity, 0) * stride
        x = tl.load(row + d, mask=there, other=0.0).to(tl.float32)
        own = tl.load(row + dim + d, mask=there & (VIEW == 3), other=0.0).to(tl.float32)
        scale, bends, along = 1.0, 0.0, 0.0
        if VIEW != 0:
            norm = tl.sqrt(tl.sum(x * x, axis=0))
            scale = 1.0 / tl.maximum(norm, _TINY)
            bends = tl.where(norm >= _TINY, 1.0, 0.0)
        unit = x * scale
        view = unit
        if VIEW == 2:
            along = tl.sum(w * unit, axis=0)
            view = unit - along * w
        if VIEW == 3:
            along = tl.sum(own * unit, axis=0)
            view = unit + along * w
        gap = q - view
        if NORM == 1:
            g = tl.where(gap > 0, slope, tl.where(gap < 0, -slope, 0.0))
        else:
            distance = tl.sqrt(tl.sum(gap * gap, axis=0))
            g = slope * gap / tl.where(distance > 0, distance, 1.0)
        of_query -= g
        of_unit = g
        out = rows + (i * k + j) * stride
        given = there
        if SUMMED:
            out = rows + tl.maximum(entity, 0) * stride
            given = there & (entity >= 0)
        if VIEW == 2:
            across = tl.sum(w * g, axis=0)
            of_unit = g - across * w
            of_context -= along * g + across * unit
        if VIEW == 3:
            across = tl.sum(w * g, axis=0)
            of_unit = g + across * own
            of_context += along * g
            _give(out + dim + d, across * unit, given, SUMMED)
        if VIEW != 0:
            of_unit = scale * (of_unit - bends * tl.sum(of_unit * unit, axis=0) * unit)
        _give(out + d, of_unit, given, SUMMED)
    tl.store(d_query + i * dim + d, of_query, mask=there)
    tl.store(d_context + i * dim + d, of_context, mask=there)


@triton.jit
def _modulus_backward(
    query, table, ids, d_scores, d_query, rows, k,
    dim: tl.constexpr, stride: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    there = d < dim
    q_re = tl.load(query + i * 2 * dim + d, mask=there, other=0.0)
    q_im = tl.load(query + i * 2 * dim + dim + d, mask=there, other=0.0)
    of_re = tl.zeros([BLOCK_D], dtype=tl.float32)
    of_im = tl.zeros([BLOCK_D], dtype=tl.float32)
    for j in range(k):
        entity = tl.load(ids + i * k + j).to(tl.int64)
        slope = tl.where(entity >= 0, tl.load(d_scores + i * k + j), 0.0)
        row = table + tl.maximum(entity, 0) * stride
        re = q_re - tl.load(row + d, mask=there, other=0.0)
        im = q_im - tl.load(row + dim + d, mask=there, other=0.0)
        modulus = tl.sqrt(re * re + im * im)
        factor = slope / tl.where(modulus > 0, modulus, 1.0)
        of_re -= factor * re
        of_im -= factor * im
        out = rows + (i * k + j) * stride
        tl.store(out + d, factor * re, mask=there)
        tl.store(out + dim + d, factor * im, mask=there)
    tl.store(d_query + i * 2 * dim + d, of_re, mask=there)
    tl.store(d_query + i * 2 * dim + dim + d, of_im, mask=there)


# The forms that the registry names ---------------------------------------------------------------


def _score(kernel: Any, tensors: list[Tensor], ids: Tensor, width: int, *constants: int) -> Tensor:
    """Run a kernel over (query, block of candidates)."""
    count, k = ids.shape
    scores = torch.empty(count, k, device=ids.device)
    block_d = min(_MAX_BLOCK_D, triton.next_power_of_2(width))
    *others, table = (tensor.contiguous() for tensor in tensors)
    wide = table.dtype == torch.bfloat16 and block_d == _MAX_BLOCK_D
    block_k = _WIDE_BLOCK_K if wide else _BLOCK_K
    if count and k:
        kernel[(count, triton.cdiv(k, block_k))](
            *others, table, ids.contiguous(), scores, k, width, table.shape[1], *constants,
            block_k, block_d, num_warps=_WARPS,
        )  # fmt: skip
    return scores


def warps_for(block: int) -> int:
    """Return how many warps a program takes for rows of that many numbers."""
    return max(1, min(8, block // 128))


def dot_forward(query: Any, table: Tensor, ids: Tensor) -> Tensor:
    """Score candidates by the dot product. Shapes: (b, q), (n, q), (b, k) -> (b, k)."""
    vectors, _, places = query
    given = [vectors, ids if places is None else places, table]
    return _score(_dot_forward, given, ids, vectors.shape[1], int(places is not None))


def dot_backward(
    query: Any, table: Tensor, ids: Tensor, d_scores: Tensor
) -> tuple[Tensor, None, Tensor]:
    """Return the gradients of queries (b, q) and of the candidates' rows (b k, q)."""
    rows = torch.empty(ids.numel(), table.shape[1], device=table.device)
    return _dot_gradients(query.vectors, query.places, table, ids, d_scores, rows), None, rows


def dot_query_sums(table: Tensor, ids: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries alone. Shape: (b, q)."""
    return _dot_gradients(None, None, table, ids, d_scores, None)


def _dot_gradients(
    vectors: Tensor | None, places: Tensor | None, table: Tensor, ids: Tensor, d_scores: Tensor,
    rows: Tensor | None, summed: bool = False,
) -> Tensor:  # fmt: skip
    """Return the gradient of queries; write that of candidates, or add it to that of a table."""
    (count, k), width = ids.shape, table.shape[1]
    d_query = d_scores.new_empty(count, width)
    block_d = min(_MAX_BLOCK_D, triton.next_power_of_2(width))
    block_k = min(_BLOCK_K, triton.next_power_of_2(max(k, 1)))
    if count:
        _dot_backward[(count, triton.cdiv(width, block_d))](
            d_query if vectors is None else vectors.contiguous(),
            ids if places is None else places, table, ids.contiguous(), d_scores.contiguous(),
            d_query, d_query if rows is None else rows, k, width, table.shape[1],
            int(places is not None), int(rows is not None), int(summed), block_k, block_d,
            num_warps=_WARPS,
        )  # fmt: skip
    return d_query


def dot_backward_summed(
    vectors: Tensor, table: Tensor, ids: Tensor, d_scores: Tensor, into: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the gradient of queries, and add those of the rows to a table, by atomic adds.

    Without a table to add to, one is made: shapes must not depend on values in a CUDA graph.
    """
    gradient = torch.zeros_like(table) if into is None else into
    return _dot_gradients(vectors, None, table, ids, d_scores, gradient, True), None, gradient


def distance_forward(query: Any, table: Tensor, ids: Tensor, norm: int, view: int) -> Tensor:
    """Score candidates by the negative distance of their view. Shape: (b, k)."""
    vectors, context, _ = query
    tensors = [vectors, vectors if context is None else context, table]
    return _score(_distance_forward, tensors, ids, vectors.shape[1], norm, view)


def distance_backward(
    query: Any, table: Tensor, ids: Tensor, d_scores: Tensor, norm: int, view: int
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the gradients of queries and contexts (b, q) and of the candidates' rows (b k, w)."""
    rows = torch.empty(ids.numel(), table.shape[1], device=table.device)
    return *_distance_gradients(query, table, ids, d_scores, norm, view, rows), rows


def distance_backward_summed(
    query: Any, table: Tensor, ids: Tensor, d_scores: Tensor, norm: int, view: int, into: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of queries and contexts; add those of the rows by atomic adds."""
    return _distance_gradients(query, table, ids, d_scores, norm, view, into, True)


def _distance_gradients(
    query: Any, table: Tensor, ids: Tensor, d_scores: Tensor, norm: int, view: int, rows: Tensor,
    summed: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return the gradients of queries and contexts; write or add up those of candidates."""
    vectors, context, _ = query
    (count, k), dim = ids.shape, vectors.shape[1]
    d_query, d_context = torch.empty_like(vectors), torch.empty_like(vectors)
    block = triton.next_power_of_2(dim)
    if count:
        _distance_backward[(count,)](
            vectors.contiguous(), (vectors if context is None else context).contiguous(), table,
            ids.contiguous(), d_scores.contiguous(), d_query, d_context, rows, k,
            dim, table.shape[1], norm, view, int(summed), block, num_warps=warps_for(block),
        )  # fmt: skip
    return d_query, None if context is None else d_context


def modulus_forward(query: Any, table: Tensor, ids: Tensor) -> Tensor:
    """Score candidates by the negative sum of complex moduli. Shape: (b, k)."""
    tensors = [query.vectors, query.vectors, table]
    return _score(_distance_forward, tensors, ids, query.vectors.shape[1] // 2, 0, 0)


def modulus_backward(
    query: Any, table: Tensor, ids: Tensor, d_scores: Tensor
) -> tuple[Tensor, None, Tensor]:
    """Return the gradients of queries (b, q) and of the candidates' rows (b k, q)."""
    (count, k), dim = ids.shape, query.vectors.shape[1] // 2
    d_query = torch.empty_like(query.vectors)
    rows = torch.empty(count * k, table.shape[1], device=table.device)
    block = min(_MAX_BLOCK_D, triton.next_power_of_2(dim))
    if count:
        _modulus_backward[(count, triton.cdiv(dim, block))](
            query.vectors.contiguous(), table, ids.contiguous(), d_scores.contiguous(), d_query,
            rows, k, dim, table.shape[1], block, num_warps=warps_for(block),
        )  # fmt: skip
    return d_query, None, rows
