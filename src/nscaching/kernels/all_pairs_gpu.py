"""Distances of all queries to all entities on a GPU, and their gradients, without differences kept.

Ranking needs the distances, softmax over many entities both. A program has a tile of pairs, or for
gradients a tile of queries and dimensions that passes over all entities. For distances, both are
transposed first, so that neighbouring threads read neighbouring numbers of one dimension.

The softmax over all entities: its normaliser and its gradient, one pass each. Ranks: a count of the
scores above the true one, in one pass.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import normalize

#: Programs that keep a large GPU busy.
_PROGRAMS = 2048
#: Warps that share a tile of pairs; its sides are 64, or shorter where that leaves programs few.
#: Numbers of so many dimensions are loaded together there, as few programs wait for memory.
_WARPS, _UNROLLED = 4, 8


@triton.jit
def _all_distances(
    query,
    views,
    scores,
    queries,
    entities,
    dim,
    NORM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_E: tl.constexpr,
    UNROLLED: tl.constexpr,
):
    """Write negative distances; those of ``NORM`` 0 are sums of moduli of [re, im]."""
    i = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    j = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)
    wide, long = tl.cast(queries, tl.int64), tl.cast(entities, tl.int64)  # times d: past 31 bits
    total = tl.zeros([BLOCK_Q, BLOCK_E], dtype=tl.float32)
    for start in range(0, dim, UNROLLED):
        for step in tl.static_range(UNROLLED):
            d = start + step
            there = d < dim
            q = tl.load(query + d * wide + i, mask=(i < queries) & there, other=0.0)
            x = tl.load(views + d * long + j, mask=(j < entities) & there, other=0.0)
            gap = q[:, None] - x[None, :]
            if NORM == 0:
                other = dim + d
                q_im = tl.load(query + other * wide + i, mask=(i < queries) & there, other=0.0)
                x_im = tl.load(views + other * long + j, mask=(j < entities) & there, other=0.0)
                im = q_im[:, None] - x_im[None, :]
                total += tl.sqrt(gap * gap + im * im)
            elif NORM == 1:
                total += tl.abs(gap)
            else:
                total += gap * gap
    if NORM == 2:
        total = tl.sqrt(total)
    place = i[:, None] * long + j[None, :]
    tl.store(scores + place, -total, mask=(i < queries)[:, None] & (j < entities)[None, :])


def all_distances(query: Tensor, views: Tensor, norm: int) -> Tensor:
    """``-||q - x||_p`` of all pairs. Shapes: (b, dim), (n, dim) -> (b, n)."""
    return _launch(query, views, query.shape[1], norm)


def all_moduli(query: Tensor, views: Tensor) -> Tensor:
    """``-sum_k |q_k - x_k|`` of all pairs. Shapes: (b, 2 dim), (n, 2 dim) -> (b, n)."""
    return _launch(query, views, query.shape[1] // 2, 0)


def _side(count: int, entities: int) -> int:
    """Return the side of a tile: shorter where programs would be few."""
    return 64 if count * entities >= 64 * 64 * _PROGRAMS // 4 else 32


def _launch(query: Tensor, views: Tensor, dim: int, norm: int) -> Tensor:
    """Run the kernel over (tile of entities, tile of queries)."""
    count, entities = len(query), len(views)
    scores = torch.empty(count, entities, device=query.device)
    if count and entities:
        side = _side(count, entities)
        _all_distances[(triton.cdiv(entities, side), triton.cdiv(count, side))](
            query.T.contiguous(),
            views.T.contiguous(),
            scores,
            count,
            entities,
            dim,
            norm,
            side,
            side,
            1 if side == 64 else _UNROLLED,
            num_warps=_WARPS,
        )
    return scores


#: Products with normals of hyperplanes that are held at once, before they are added up.
_PRODUCTS = 1 << 24


@triton.jit
def _all_views(
    query, context, unit, moved, group, scores, queries, entities, dim,
    NORM: tl.constexpr, OWN: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_E: tl.constexpr, UNROLLED: tl.constexpr,
):  # fmt: skip
    """Write negative distances to ``unit + moved context``; ``OWN``: moved by a row per group.

    Compiled without fused multiply-adds but the one that is written: the numbers are those of views
    that were made beforehand.
    """
    i = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    j = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)
    wide, long = tl.cast(queries, tl.int64), tl.cast(entities, tl.int64)  # times d: past 31 bits
    if OWN:
        row = tl.load(group + i, mask=i < queries, other=0) * long
        inside = (i < queries)[:, None] & (j < entities)[None, :]
        by = tl.load(moved + row[:, None] + j[None, :], mask=inside, other=0.0)
    else:
        by = tl.load(moved + j, mask=j < entities, other=0.0)[None, :]
    total = tl.zeros([BLOCK_Q, BLOCK_E], dtype=tl.float32)
    for start in range(0, dim, UNROLLED):
        for step in tl.static_range(UNROLLED):
            d = start + step
            there = d < dim
            q = tl.load(query + d * wide + i, mask=(i < queries) & there, other=0.0)
            w = tl.load(context + d * wide + i, mask=(i < queries) & there, other=0.0)
            x = tl.load(unit + d * long + j, mask=(j < entities) & there, other=0.0)
            gap = q[:, None] - (x[None, :] + by * w[:, None])
            if NORM == 1:
                total += tl.abs(gap)
            else:
                total = tl.fma(gap, gap, total)
    if NORM == 2:
        total = tl.sqrt(total)
    place = i[:, None] * long + j[None, :]
    tl.store(scores + place, -total, mask=(i < queries)[:, None] & (j < entities)[None, :])


def all_view_distances(query: Any, table: Tensor, norm: int, view: int) -> Tensor:
    """Score all pairs through the view of each query's relation. Shapes: (n, w) -> (b, n).

    One kernel for the questions of all relations: a kernel for each would wait for its launch.
    """
    vectors, context, _ = query
    (count, dim), entities = vectors.shape, len(table)
    scores = torch.empty(count, entities, device=vectors.device)
    if not (count and entities):
        return scores
    unit = normalize(table[:, :dim], dim=-1)
    own = view == 2
    if own:
        group, moved = _onto_hyperplanes(unit, context)
    else:
        moved = (table[:, dim:] * unit).sum(-1)
        group = moved  # which is not read
    side = _side(count, entities)
    _all_views[(triton.cdiv(entities, side), triton.cdiv(count, side))](
        vectors.T.contiguous(), context.T.contiguous(), unit.T.contiguous(), moved, group, scores,
        count, entities, dim, norm, own, side, side, 1 if side == 64 else _UNROLLED,
        num_warps=_WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return scores


def _onto_hyperplanes(unit: Tensor, normals: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of the different normals each query has, and how far they move each entity.

    Shapes: (n, q), (b, q) -> (b,), (g, n).
    """
    order = normals[:, 0].argsort(stable=True)
    ordered = normals[order]
    new = torch.ones_like(order, dtype=torch.bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(1)
    group = torch.empty_like(order).scatter_(0, order, new.cumsum(0) - 1)
    different = ordered[new]
    moved = unit.new_empty(len(different), len(unit))
    block = max(1, _PRODUCTS // unit.numel())
    for start in range(0, len(different), block):
        part = different[start : start + block]
        moved[start : start + block] = (part.unsqueeze(1) * unit).sum(-1)
    return group, moved.neg_()


@triton.jit
def _gradient_sums(
    query, views, d_scores, sums, queries, entities, dim, share, stride_q, stride_e,
    MODULUS: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr, UNROLLED: tl.constexpr,
):  # fmt: skip
    """Write gradients of queries from L1 distances, or if ``MODULUS`` from moduli of [re, im]."""
    i = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    wide, far = tl.cast(dim, tl.int64), tl.cast(queries, tl.int64)
    if MODULUS:
        wide = 2 * wide
    inside = (i < queries)[:, None] & (d < dim)[None, :]
    q = tl.load(query + i[:, None] * wide + d[None, :], mask=inside, other=0.0)
    total = tl.zeros([BLOCK_Q, BLOCK_D], dtype=tl.float32)
    if MODULUS:
        q_im = tl.load(query + i[:, None] * wide + dim + d[None, :], mask=inside, other=0.0)
        total_im = tl.zeros([BLOCK_Q, BLOCK_D], dtype=tl.float32)
    first = tl.program_id(2) * share
    for start in range(first, tl.minimum(first + share, entities), UNROLLED):
        for step in tl.static_range(UNROLLED):
            j = tl.cast(start + step, tl.int64)
            there = start + step < entities
            x = tl.load(views + j * wide + d, mask=(d < dim) & there, other=0.0)
            given = d_scores + i * tl.cast(stride_q, tl.int64) + j * stride_e
            slope = tl.load(given, mask=(i < queries) & there, other=0.0)[:, None]
            gap = q - x[None, :]
            if MODULUS:
                x_im = tl.load(views + j * wide + dim + d, mask=(d < dim) & there, other=0.0)
                im = q_im - x_im[None, :]
                square = gap * gap + im * im
                factor = slope * tl.rsqrt(tl.where(square > 0, square, 1.0))
                total -= factor * gap
                total_im -= factor * im
            else:
                total -= tl.where(gap > 0, slope, tl.where(gap < 0, -slope, 0.0))
    place = (tl.program_id(2) * far + i)[:, None] * wide + d[None, :]
    tl.store(sums + place, total, mask=inside)
    if MODULUS:
        tl.store(sums + place + dim, total_im, mask=inside)


def sign_sums(query: Tensor, views: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries from L1 distances. Shapes: (b, q), (n, q), (b, n)."""
    return _launch_sums(query, views, d_scores, query.shape[1], False)


def direction_sums(query: Tensor, views: Tensor, d_scores: Tensor) -> Tensor:
    """Return the gradient of queries from complex moduli. Shapes: (b, q), (n, q), (b, n)."""
    return _launch_sums(query, views, d_scores, query.shape[1] // 2, True)


#: Queries and dimensions of a tile of gradients, entities that are loaded together, and warps.
_SUM_Q, _SUM_D, _SUM_UNROLLED, _SUM_WARPS = 16, 64, 4, 2


def _launch_sums(query: Tensor, views: Tensor, d_scores: Tensor, dim: int, modulus: bool) -> Tensor:
    """Run the kernel over (tile of queries, tile of dimensions, share of the entities)."""
    count, entities = len(query), len(views)
    if query.numel() == 0 or entities == 0:
        return torch.zeros_like(query)
    tiles = triton.cdiv(count, _SUM_Q) * triton.cdiv(dim, _SUM_D)
    parts = max(1, min(_PROGRAMS // tiles, entities // 64))
    share = triton.cdiv(triton.cdiv(entities, parts), _SUM_UNROLLED) * _SUM_UNROLLED
    sums = torch.empty(parts, *query.shape, device=query.device)
    _gradient_sums[(triton.cdiv(count, _SUM_Q), triton.cdiv(dim, _SUM_D), parts)](
        query.contiguous(),
        views.contiguous(),
        d_scores,
        sums,
        count,
        entities,
        dim,
        share,
        *d_scores.stride(),
        modulus,
        _SUM_Q,
        _SUM_D,
        _SUM_UNROLLED,
        num_warps=_SUM_WARPS,
    )
    return sums[0] if parts == 1 else sums.sum(0)


# Softmax -----------------------------------------------------------------------------------------

#: Logits that a program takes at once.
_LOGITS = 4096


def _warps(block: int) -> int:
    """Return how many warps share so many logits: sixteen a thread."""
    return max(1, min(8, block // 512))


@triton.jit
def _logsumexp(logits, total, count, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    added = tl.zeros([BLOCK], tl.float32)
    for start in range(0, count, BLOCK):
        j = start + tl.arange(0, BLOCK)
        x = tl.load(logits + i * stride + j, mask=j < count, other=float("-inf"))
        higher = tl.maximum(largest, x)
        finite = tl.where(higher > float("-inf"), higher, 0.0)
        added = added * tl.exp(largest - finite) + tl.exp(x - finite)
        largest = higher
    top = tl.max(largest, axis=0)
    finite_top = tl.where(top > float("-inf"), top, 0.0)
    whole = tl.sum(added * tl.exp(largest - finite_top), axis=0)
    tl.store(total + i, finite_top + tl.log(whole))


@triton.jit
def _gradient(logits, total, targets, first, count, stride, sharp, spread, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + i * stride + j, mask=j < count, other=0.0)
    target = tl.load(targets + i) - first
    value = tl.exp(x - tl.load(total + i)) - spread
    value = tl.where(j == target, value - sharp, value)
    tl.store(logits + i * stride + j, value, mask=j < count)


def logsumexp(logits: Tensor) -> Tensor:
    """Return the log-sum-exp of each row. Shapes: (q, n) -> (q, 1)."""
    total = torch.empty(len(logits), 1, device=logits.device)
    block = min(_LOGITS, triton.next_power_of_2(max(1, logits.shape[1])))
    if len(logits):
        _logsumexp[(len(logits),)](
            logits, total, logits.shape[1], logits.stride(0), block, num_warps=_warps(block)
        )
    return total


def softmax_gradient(
    logits: Tensor, total: Tensor, targets: Tensor, first: int, sharp: float, spread: float
) -> Tensor:
    """Turn logits of a block of entities into the gradient of their scores, in place. (q, n)."""
    count = logits.shape[1]
    block = min(_LOGITS, triton.next_power_of_2(max(1, count)))
    if logits.numel():
        _gradient[(len(logits), triton.cdiv(count, block))](
            logits,
            total,
            targets.contiguous(),
            first,
            count,
            logits.stride(0),
            sharp,
            spread,
            block,
            num_warps=8,
        )
    return logits


@triton.jit
def _count_above(scores, row, true, better, equal, count, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    of_question = scores + tl.load(row + i) * stride
    limit = tl.load(true + i)
    above = tl.zeros([BLOCK], tl.int32)
    same = tl.zeros([BLOCK], tl.int32)
    for start in range(0, count, BLOCK):
        j = start + tl.arange(0, BLOCK)
        score = tl.load(of_question + j, mask=j < count, other=float("nan"))
        above += (score > limit).to(tl.int32)
        same += (score == limit).to(tl.int32)
    tl.store(better + i, tl.sum(above, axis=0).to(tl.int64))
    tl.store(equal + i, tl.sum(same, axis=0).to(tl.int64))


def count_above(
    scores: Tensor, row: Tensor, true: Tensor, question: Tensor, entity: Tensor
) -> tuple[Tensor, Tensor]:
    """Do what :func:`nscaching.evaluation.ranking.count_above` says, in one pass."""
    scores[question, entity] = torch.nan
    better, equal = torch.empty(2, len(row), dtype=torch.int64, device=scores.device)
    block = min(_LOGITS, triton.next_power_of_2(max(1, scores.shape[1])))
    if len(row):
        _count_above[(len(row),)](
            scores,
            row.contiguous(),
            true.contiguous(),
            better,
            equal,
            scores.shape[1],
            scores.stride(0),
            block,
            num_warps=_warps(block),
        )
    return better, equal
