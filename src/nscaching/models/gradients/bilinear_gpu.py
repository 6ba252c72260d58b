"""Loss and gradients of DistMult, ComplEx and SimplE on a GPU: a program a triple."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from nscaching.models.gpu_kernels import bilinear_parts
from nscaching.models.gradients.pair_gpu import negative_loss, positive_loss


@triton.jit
def _gradients(
    entity,
    relation,
    heads,
    relations,
    tails,
    negatives,
    replaces_head,
    weight,
    entity_rows,
    relation_rows,
    scores,
    losses,
    count,
    margin,
    half: tl.constexpr,
    width: tl.constexpr,
    K: tl.constexpr,
    KIND: tl.constexpr,
    RANKING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    low = d < half
    high = low & (KIND != 0)
    h = tl.load(heads + i).to(tl.int64) * width
    r = tl.load(relations + i).to(tl.int64) * width
    t = tl.load(tails + i).to(tl.int64) * width
    ha, hb = tl.load(entity + h + d, low, 0.0), tl.load(entity + h + half + d, high, 0.0)
    ra, rb = tl.load(relation + r + d, low, 0.0), tl.load(relation + r + half + d, high, 0.0)
    ta, tb = tl.load(entity + t + d, low, 0.0), tl.load(entity + t + half + d, high, 0.0)
    gha, ghb, gra, grb, gta, gtb = bilinear_parts(ha, hb, ra, rb, ta, tb, KIND)
    positive = tl.sum(gra * ra, axis=0)
    if KIND != 0:
        positive += tl.sum(grb * rb, axis=0)
    loss, slope = positive_loss(positive, RANKING)
    dha = tl.zeros([BLOCK], tl.float32)
    dhb = tl.zeros([BLOCK], tl.float32)
    dra = tl.zeros([BLOCK], tl.float32)
    drb = tl.zeros([BLOCK], tl.float32)
    dta = tl.zeros([BLOCK], tl.float32)
    dtb = tl.zeros([BLOCK], tl.float32)
    for j in range(K):
        n = tl.load(negatives + i * K + j).to(tl.int64) * width
        swap = tl.load(replaces_head + i * K + j) != 0
        w = tl.load(weight + i * K + j)
        na, nb = tl.load(entity + n + d, low, 0.0), tl.load(entity + n + half + d, high, 0.0)
        xa, xb = tl.where(swap, na, ha), tl.where(swap, nb, hb)
        ya, yb = tl.where(swap, ta, na), tl.where(swap, tb, nb)
        nha, nhb, nra, nrb, nta, ntb = bilinear_parts(xa, xb, ra, rb, ya, yb, KIND)
        negative = tl.sum(nra * ra, axis=0)
        if KIND != 0:
            negative += tl.sum(nrb * rb, axis=0)
        tl.store(scores + i * K + j, negative)
        more, release, pull = negative_loss(positive, negative, w, margin, RANKING)
        loss += more
        slope += release
        dra += pull * nra
        drb += pull * nrb
        dha += tl.where(swap, 0.0, pull * nha)
        dhb += tl.where(swap, 0.0, pull * nhb)
        dta += tl.where(swap, pull * nta, 0.0)
        dtb += tl.where(swap, pull * ntb, 0.0)
        row = entity_rows + (2 * count + i * K + j) * width
        tl.store(row + d, pull * tl.where(swap, nha, nta), mask=low)
        tl.store(row + half + d, pull * tl.where(swap, nhb, ntb), mask=high)
    tl.store(losses + i, loss)
    tl.store(relation_rows + i * width + d, dra + slope * gra, mask=low)
    tl.store(relation_rows + i * width + half + d, drb + slope * grb, mask=high)
    tl.store(entity_rows + i * width + d, dha + slope * gha, mask=low)
    tl.store(entity_rows + i * width + half + d, dhb + slope * ghb, mask=high)
    tl.store(entity_rows + (count + i) * width + d, dta + slope * gta, mask=low)
    tl.store(entity_rows + (count + i) * width + half + d, dtb + slope * gtb, mask=high)


def gradients(*arrays: Any) -> None:
    """Do what :func:`nscaching.models.gradients.bilinear_cpu.gradients` does, on a GPU."""
    *tensors, kind, margin = arrays
    entity, negatives = tensors[0], tensors[5]
    width = entity.shape[1]
    half = width if kind == 0 else width // 2
    count, k = negatives.shape
    block = triton.next_power_of_2(half)
    _gradients[(count,)](*tensors, count, float(margin), half, width, k, kind, margin > 0, block)
