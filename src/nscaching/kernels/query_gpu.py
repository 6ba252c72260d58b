"""Queries on a GPU: bilinear ones and views of anchors, fused with the gather, in Triton.

A program has one question. ``PLUS`` and ``MINUS`` say, a bit per product of parts, which products
a bilinear query is the sum of: they are constants, so that only those are compiled.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nscaching.kernels.match_gpu import warps_for

_TINY = tl.constexpr(1e-12)


@triton.jit
def _sum_products(
    a, b, out, d, there, dim: tl.constexpr,
    PARTS: tl.constexpr, PARTS_A: tl.constexpr, PARTS_B: tl.constexpr,
    AT_I: tl.constexpr, AT_J: tl.constexpr, AT_K: tl.constexpr,
    PLUS: tl.constexpr, MINUS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write part i of ``out``: a sum of products of part j of ``a`` and part k of ``b``.

    The bit of a product is at ``i AT_I + j AT_J + k AT_K``.
    """
    for i in tl.static_range(PARTS):
        total = tl.zeros([BLOCK], tl.float32)
        for j in tl.static_range(PARTS_A):
            for k in tl.static_range(PARTS_B):
                if ((PLUS | MINUS) >> (i * AT_I + j * AT_J + k * AT_K)) & 1:
                    product = tl.load(a + j * dim + d, there, 0.0) * tl.load(
                        b + k * dim + d, there, 0.0
                    )
                    if (PLUS >> (i * AT_I + j * AT_J + k * AT_K)) & 1:
                        total += product
                    else:
                        total -= product
        tl.store(out + i * dim + d, total, mask=there)


@triton.jit
def _bilinear_query(
    e, r, out, d, there, dim: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    PLUS: tl.constexpr, MINUS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    _sum_products(e, r, out, d, there, dim, P, P, Q, P * Q, Q, 1, PLUS, MINUS, BLOCK)


@triton.jit
def _question(heads, tails, asked, i, count, ASKED: tl.constexpr):
    """Return the anchor, the triple and whether a tail is asked for."""
    place = i
    if ASKED:
        place = tl.load(asked + i)
    is_tail = place >= count
    triple = tl.where(is_tail, place - count, place)
    anchor = tl.load(tl.where(is_tail, heads + triple, tails + triple)).to(tl.int64)
    return anchor, triple, is_tail


@triton.jit
def _bilinear_forward(
    entity, relation, heads, relations, tails, queries, second_half, count,
    dim: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    HEAD_PLUS: tl.constexpr, HEAD_MINUS: tl.constexpr,
    TAIL_PLUS: tl.constexpr, TAIL_MINUS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    there = d < dim
    anchor, triple, is_tail = _question(heads, tails, heads, i, count, False)
    row = tl.load(relations + triple).to(tl.int64) + tl.where(is_tail, 0, second_half)
    e, r = entity + anchor * P * dim, relation + row * Q * dim
    out = queries + i * P * dim
    if is_tail:
        _bilinear_query(e, r, out, d, there, dim, P, Q, TAIL_PLUS, TAIL_MINUS, BLOCK)
    else:
        _bilinear_query(e, r, out, d, there, dim, P, Q, HEAD_PLUS, HEAD_MINUS, BLOCK)


@triton.jit
def _bilinear_gradient(
    e, r, g, d_e, d_r, d, there, dim: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    PLUS: tl.constexpr, MINUS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    _sum_products(g, r, d_e, d, there, dim, P, P, Q, Q, P * Q, 1, PLUS, MINUS, BLOCK)
    _sum_products(g, e, d_r, d, there, dim, Q, P, P, 1, P * Q, Q, PLUS, MINUS, BLOCK)


@triton.jit
def _bilinear_backward(
    entity, relation, heads, relations, tails, asked, d_query, anchors, d_entity, rows, d_relation,
    second_half, count, ASKED: tl.constexpr, dim: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    HEAD_PLUS: tl.constexpr, HEAD_MINUS: tl.constexpr,
    TAIL_PLUS: tl.constexpr, TAIL_MINUS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    there = d < dim
    anchor, triple, is_tail = _question(heads, tails, asked, i, count, ASKED)
    row = tl.load(relations + triple).to(tl.int64) + tl.where(is_tail, 0, second_half)
    tl.store(anchors + i, anchor)
    tl.store(rows + i, row)
    e, r = entity + anchor * P * dim, relation + row * Q * dim
    g, d_e, d_r = d_query + i * P * dim, d_entity + i * P * dim, d_relation + i * Q * dim
    if is_tail:
        _bilinear_gradient(e, r, g, d_e, d_r, d, there, dim, P, Q, TAIL_PLUS, TAIL_MINUS, BLOCK)
    else:
        _bilinear_gradient(e, r, g, d_e, d_r, d, there, dim, P, Q, HEAD_PLUS, HEAD_MINUS, BLOCK)


@triton.jit
def _translation_forward(
    table, heads, tails, context, relation, queries, count, context_width, relation_width,
    dim: tl.constexpr, stride: tl.constexpr, VIEW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    there = d < dim
    anchor, triple, is_tail = _question(heads, tails, heads, i, count, False)
    row = table + anchor * stride
    x = tl.load(row + d, mask=there, other=0.0).to(tl.float32)
    view = x
    if VIEW != 0:
        view = x / tl.maximum(tl.sqrt(tl.sum(x * x, axis=0)), _TINY)
    if VIEW >= 2:
        w = tl.load(context + triple * context_width + d, mask=there, other=0.0)
        if VIEW == 2:
            view = view - tl.sum(w * view, axis=0) * w
        else:
            own = tl.load(row + dim + d, mask=there, other=0.0)
            view = view + tl.sum(own * view, axis=0) * w
    r = tl.load(relation + triple * relation_width + d, mask=there, other=0.0)
    tl.store(queries + i * dim + d, view + tl.where(is_tail, r, -r), mask=there)


@triton.jit
def _translation_backward(
    table, heads, tails, context, asked, d_query, anchors, rows, d_context, d_translation,
    count, context_width, ASKED: tl.constexpr, dim: tl.constexpr, stride: tl.constexpr,
    VIEW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    there = d < dim
    anchor, triple, is_tail = _question(heads, tails, asked, i, count, ASKED)
    tl.store(anchors + i, anchor)
    row = table + anchor * stride
    x = tl.load(row + d, mask=there, other=0.0).to(tl.float32)
    g = tl.load(d_query + i * dim + d, mask=there, other=0.0)
    tl.store(d_translation + i * dim + d, tl.where(is_tail, g, -g), mask=there)
    of_unit = g
    of_context = tl.zeros([BLOCK], tl.float32)
    out = rows + i * stride
    if VIEW != 0:
        norm = tl.sqrt(tl.sum(x * x, axis=0))
        scale = 1.0 / tl.maximum(norm, _TINY)
        unit = x * scale
        if VIEW >= 2:
            w = tl.load(context + triple * context_width + d, mask=there, other=0.0)
            across = tl.sum(w * g, axis=0)
            if VIEW == 2:
                of_context = -(tl.sum(w * unit, axis=0) * g + across * unit)
                of_unit = g - across * w
            else:
                own = tl.load(row + dim + d, mask=there, other=0.0)
                of_context = tl.sum(own * unit, axis=0) * g
                of_unit = g + across * own
                tl.store(out + dim + d, across * unit, mask=there)
        bends = tl.where(norm >= _TINY, 1.0, 0.0)
        of_unit = scale * (of_unit - bends * tl.sum(of_unit * unit, axis=0) * unit)
    tl.store(out + d, of_unit, mask=there)
    tl.store(d_context + i * dim + d, of_context, mask=there)


# The forms that the registry names ---------------------------------------------------------------


def _constants(terms: Tensor) -> tuple[int, ...]:
    """Return parts of an entity and a relation, then the bits of the head's and tail's products.

    ``terms`` (2, o, p, q) lies on the host: nothing waits for the device.
    """
    flat = terms.reshape(2, -1).tolist()
    bits = [
        sum(1 << place for place, factor in enumerate(side) if factor == sign)
        for side in flat
        for sign in (1, -1)
    ]
    return terms.shape[2], terms.shape[3], *bits


def bilinear_forward(entity: Tensor, relation: Tensor, questions: Any, terms: Tensor) -> Tensor:
    """Return the queries for heads, then for tails. Shape: (2b, w)."""
    heads, relations, tails, second_half, _ = questions
    constants = _constants(terms)
    dim, count = entity.shape[1] // constants[0], len(heads)
    queries = torch.empty(2 * count, entity.shape[1], device=entity.device)
    block = triton.next_power_of_2(dim)
    if count:
        _bilinear_forward[(2 * count,)](
            entity, relation, heads, relations, tails, queries, second_half, count,
            dim, *constants, block, num_warps=warps_for(block),
        )  # fmt: skip
    return queries


def bilinear_backward(
    entity: Tensor, relation: Tensor, questions: Any, terms: Tensor, d_query: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return anchors (m,), gradients of their rows (m, w), relation rows (m,), theirs (m, rw)."""
    heads, relations, tails, second_half, asked = questions
    constants = _constants(terms)
    dim, count = entity.shape[1] // constants[0], len(d_query)
    anchors, rows = torch.empty(2, count, dtype=torch.int64, device=entity.device)
    d_entity = torch.empty(count, entity.shape[1], device=entity.device)
    d_relation = torch.empty(count, relation.shape[1], device=entity.device)
    block = triton.next_power_of_2(dim)
    if count:
        _bilinear_backward[(count,)](
            entity, relation, heads, relations, tails, heads if asked is None else asked,
            d_query.contiguous(), anchors, d_entity, rows, d_relation, second_half, len(heads),
            asked is not None, dim, *constants, block, num_warps=warps_for(block),
        )  # fmt: skip
    return anchors, d_entity, rows, d_relation


def translation_forward(
    table: Tensor, questions: Any, context: Tensor, view: int, relation: Tensor
) -> Tensor:
    """Return the queries for heads, then for tails; context, relation (b, .). Shape: (2b, q)."""
    heads, _, tails, *_ = questions
    dim = table.shape[1] // 2 if view == 3 else table.shape[1]
    queries = torch.empty(2 * len(heads), dim, device=table.device)
    block = triton.next_power_of_2(dim)
    if len(heads):
        _translation_forward[(2 * len(heads),)](
            table, heads, tails, context, relation, queries, len(heads), context.stride(0),
            relation.stride(0), dim, table.shape[1], view, block, num_warps=warps_for(block),
        )  # fmt: skip
    return queries


def translation_backward(
    table: Tensor, questions: Any, context: Tensor, view: int, d_query: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return anchors (m,), gradients of rows (m, w), contexts (m, q) and translations (m, q)."""
    heads, _, tails, _, asked = questions
    count, dim = d_query.shape
    anchors = torch.empty(count, dtype=torch.int64, device=table.device)
    rows = torch.empty(count, table.shape[1], device=table.device)
    d_context, d_translation = torch.empty(2, count, dim, device=table.device)
    block = triton.next_power_of_2(dim)
    if count:
        _translation_backward[(count,)](
            table, heads, tails, context, heads if asked is None else asked, d_query.contiguous(),
            anchors, rows, d_context, d_translation, len(heads), context.stride(0),
            asked is not None, dim, table.shape[1], view, block, num_warps=warps_for(block),
        )  # fmt: skip
    return anchors, rows, d_context, d_translation
