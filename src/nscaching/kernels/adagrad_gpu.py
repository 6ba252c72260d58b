"""Adagrad on a GPU, in Triton: one pass over a table and its gradient, or over rows of it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nscaching.kernels.cache_gpu import hashed, stream_of
from nscaching.kernels.constants import ADAGRAD_EPSILON
from nscaching.kernels.match_gpu import warps_for

_EPSILON = tl.constexpr(ADAGRAD_EPSILON)
_BLOCK = 1024
#: Gradients of a row that are read at once after the first (most rows have one or two), and numbers
#: of it that a program takes.
_AT_ONCE, _LARGE_BLOCK = 4, 2048


@triton.jit
def _adagrad(table, square, gradient, rate, lr, size, CLEAR: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    g = tl.load(gradient + place, mask=inside, other=0.0)
    if tl.max(tl.abs(g), axis=0) == 0:  # most rows of a large table have no gradient
        return
    total = tl.load(square + place, mask=inside, other=0.0) + g * g
    x = tl.load(table + place, mask=inside, other=0.0)
    tl.store(square + place, total, mask=inside)
    tl.store(table + place, x - lr * tl.load(rate) * g / (tl.sqrt(total) + _EPSILON), mask=inside)
    if CLEAR:
        tl.store(gradient + place, tl.zeros([BLOCK], tl.float32), mask=inside)


def adagrad_dense(
    table: Tensor,
    square: Tensor,
    gradient: Tensor,
    rate: Tensor,
    lr: float,
    weight_decay: float,
    clear: bool,
) -> None:
    """Move all rows of a table in place; the rate is a factor of the learning rate.

    With ``clear`` the gradient becomes zero in the same pass.
    """
    if weight_decay:
        if clear:
            given, gradient = gradient, gradient.clone()
            given.zero_()
        gradient = gradient + weight_decay * table * (gradient != 0).any(1, keepdim=True)
    if table.numel():
        _adagrad[(triton.cdiv(table.numel(), _BLOCK),)](
            table, square, gradient.contiguous(), rate, lr, table.numel(), clear, _BLOCK
        )


@triton.jit
def _rounded(values, bits):
    """Round to bfloat16 by random bits: those that are cut off say how often upwards."""
    noise = (bits & 0xFFFF).to(tl.int32)
    return ((values.to(tl.int32, bitcast=True) + noise) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _gradient_of(
    order, rows, slopes, vectors, places, j, mine, written, k,
    width: tl.constexpr, PRODUCTS: tl.constexpr, PLACED: tl.constexpr,
):  # fmt: skip
    """Return the factor of a gradient and where its numbers are; of one gradient, or of a block."""
    place = tl.load(order + j, mask=mine, other=0)
    row, factor = rows + place * width, tl.where(mine, 1.0, 0.0)
    if PRODUCTS:
        product = mine & (place >= written)
        of_product = tl.maximum(place - written, 0)
        factor = tl.load(slopes + of_product, mask=product, other=1.0)
        asked = of_product // k
        if PLACED:
            asked = tl.load(places + asked, mask=product, other=0)
        row = tl.where(product, vectors + asked * width, row)
    return factor, row


@triton.jit
def _adagrad_large(
    table, square, ids, order, rows, slopes, vectors, places, seed, rate, lr, decay,
    count, written, k,
    width: tl.constexpr, PRODUCTS: tl.constexpr, PLACED: tl.constexpr, ROUND: tl.constexpr,
    DECAYS: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the gradients of a row up and move it; the first ones are written out, others products.

    A product is a slope times the vector of its question, which has ``k`` of them. Most rows have
    one gradient: it is read alone, and few at once after it, which leaves registers for programs.
    """
    i = tl.program_id(0).to(tl.int64)
    entity = tl.load(ids + i)
    if entity < 0:
        return
    if tl.load(ids + i - 1, mask=i > 0, other=-1) == entity:
        return  # the first of a row's gradients does it all
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = d < width
    own = entity.to(tl.int64) * width + d
    x = tl.load(table + own, mask=there, other=0.0).to(tl.float32)
    total = tl.load(square + own, mask=there, other=0.0).to(tl.float32)
    factor, row = _gradient_of(
        order, rows, slopes, vectors, places, i, entity >= 0, written, k, width, PRODUCTS, PLACED
    )
    g = factor * tl.load(row + d, mask=there, other=0.0)
    j = i + 1
    others = tl.load(ids + j, mask=j < count, other=-1) == entity
    while others:
        several = j + tl.arange(0, BLOCK_J)
        mine = tl.load(ids + several, mask=several < count, other=-1) == entity
        factors, starts = _gradient_of(
            order, rows, slopes, vectors, places, several, mine, written, k,
            width, PRODUCTS, PLACED,
        )  # fmt: skip
        both = mine[:, None] & there[None, :]
        given = tl.load(starts[:, None] + d[None, :], mask=both, other=0.0)
        g += tl.sum(factors[:, None] * given, axis=0)
        j += BLOCK_J
        others = tl.min(mine.to(tl.int32), axis=0) > 0
    if DECAYS:  # where there is a gradient; without one all numbers stay what they are
        g += tl.where(tl.max(tl.abs(g), axis=0) > 0, decay, 0.0) * x
    total += g * g
    x -= lr * tl.load(rate) * g / (tl.sqrt(total) + _EPSILON)
    if ROUND:
        bits = hashed(stream_of(seed, entity), d)
        x = _rounded(x, bits)
        total = _rounded(total, bits >> 16)
    tl.store(table + own, x.to(table.dtype.element_ty), mask=there)
    tl.store(square + own, total.to(square.dtype.element_ty), mask=there)


def adagrad_large(
    table: Tensor,
    square: Tensor,
    ids: Tensor,
    rows: Tensor,
    products: tuple[Tensor, Tensor, Tensor | None] | None,
    count: Tensor,
    rate: Tensor,
    lr: float,
    weight_decay: float,
) -> None:
    """Move rows of a table in place; ids may repeat. The rate is a factor of the learning rate.

    Gradients are added up in the order of their ids, so that the same ones give the same bits.
    Products are never written out.
    """
    width = table.shape[1]
    slopes, vectors, places = products or (rows, rows, None)
    ordered, order = ids.to(torch.int32).sort(stable=True)
    # A row decays where any part of its gradient is not zero, so that one program must have it all.
    block = triton.next_power_of_2(width)
    if not weight_decay:
        block = min(block, _LARGE_BLOCK)
    if len(ids):
        _adagrad_large[(len(ids), triton.cdiv(width, block))](
            table, square, ordered, order, rows.contiguous(), slopes.contiguous(),
            vectors.contiguous(), order if places is None else places.contiguous(), count, rate,
            lr, weight_decay, len(ids), len(rows), slopes.shape[1], width,
            products is not None, places is not None, table.dtype == torch.bfloat16,
            weight_decay > 0, _AT_ONCE, block, num_warps=warps_for(block),
        )  # fmt: skip
