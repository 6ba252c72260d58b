"""Loss and gradients of RotatE on a GPU: a program a triple."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from nscaching.models.gradients.pair_gpu import negative_loss, positive_loss, warps


@triton.jit
def _entity(entity, id, d, there, dim: tl.constexpr):
    """Load the real and the imaginary part of an entity."""
    row = entity + tl.load(id).to(tl.int64) * 2 * dim
    return tl.load(row + d, there, 0.0), tl.load(row + dim + d, there, 0.0)


@triton.jit
def _compare(h_re, h_im, cos, sin, t_re, t_im):
    """Return the score and its gradients: by head, tail (real, imaginary) and phase."""
    x, y = h_re * cos - h_im * sin, h_re * sin + h_im * cos
    re, im = x - t_re, y - t_im
    modulus = tl.sqrt(re * re + im * im)
    inverse = 1.0 / tl.where(modulus > 0, modulus, 1.0)
    re, im = re * inverse, im * inverse
    by_head_re, by_head_im = -re * cos - im * sin, re * sin - im * cos
    return -tl.sum(modulus, axis=0), by_head_re, by_head_im, re, im, re * y - im * x


@triton.jit
def _store(row, re, im, d, there, dim: tl.constexpr):
    tl.store(row + d, re, mask=there)
    tl.store(row + dim + d, im, mask=there)


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
    dim: tl.constexpr,
    K: tl.constexpr,
    RANKING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    there = d < dim
    h_re, h_im = _entity(entity, heads + i, d, there, dim)
    t_re, t_im = _entity(entity, tails + i, d, there, dim)
    phase = tl.load(relation + tl.load(relations + i).to(tl.int64) * dim + d, there, 0.0)
    cos, sin = tl.cos(phase), tl.sin(phase)
    positive, ph_re, ph_im, pt_re, pt_im, p_phase = _compare(h_re, h_im, cos, sin, t_re, t_im)
    loss, slope = positive_loss(positive, RANKING)
    dh_re = tl.zeros([BLOCK], tl.float32)
    dh_im = tl.zeros([BLOCK], tl.float32)
    dt_re = tl.zeros([BLOCK], tl.float32)
    dt_im = tl.zeros([BLOCK], tl.float32)
    d_phase = tl.zeros([BLOCK], tl.float32)
    for j in range(K):
        place = i * K + j
        swap = tl.load(replaces_head + place) != 0
        n_re, n_im = _entity(entity, negatives + place, d, there, dim)
        x_re, x_im = tl.where(swap, n_re, h_re), tl.where(swap, n_im, h_im)
        y_re, y_im = tl.where(swap, t_re, n_re), tl.where(swap, t_im, n_im)
        negative, nh_re, nh_im, nt_re, nt_im, n_phase = _compare(x_re, x_im, cos, sin, y_re, y_im)
        tl.store(scores + place, negative)
        more, release, pull = negative_loss(
            positive, negative, tl.load(weight + place), margin, RANKING
        )
        loss += more
        slope += release
        d_phase += pull * n_phase
        dh_re += tl.where(swap, 0.0, pull * nh_re)
        dh_im += tl.where(swap, 0.0, pull * nh_im)
        dt_re += tl.where(swap, pull * nt_re, 0.0)
        dt_im += tl.where(swap, pull * nt_im, 0.0)
        row = entity_rows + (2 * count + place) * 2 * dim
        n_re, n_im = tl.where(swap, nh_re, nt_re), tl.where(swap, nh_im, nt_im)
        _store(row, pull * n_re, pull * n_im, d, there, dim)
    tl.store(losses + i, loss)
    tl.store(relation_rows + i * dim + d, d_phase + slope * p_phase, mask=there)
    row = entity_rows + i * 2 * dim
    _store(row, dh_re + slope * ph_re, dh_im + slope * ph_im, d, there, dim)
    row = entity_rows + (count + i) * 2 * dim
    _store(row, dt_re + slope * pt_re, dt_im + slope * pt_im, d, there, dim)


def gradients(*arrays: Any) -> None:
    """Do what :func:`nscaching.models.gradients.rotation_cpu.gradients` does, on a GPU."""
    *tensors, margin = arrays
    dim = tensors[1].shape[1]
    count, k = tensors[5].shape
    block = triton.next_power_of_2(dim)
    _gradients[(count,)](
        *tensors, count, float(margin), dim, k, margin > 0, block, num_warps=warps(block)
    )
