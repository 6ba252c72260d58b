"""What the passes of all families share on a GPU: the loss of a pair, and how many warps run."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _softplus(x):
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def positive_loss(positive, RANKING: tl.constexpr):
    """Return the loss of a positive by itself, and its derivative by the score."""
    if RANKING:
        loss, slope = tl.zeros([], tl.float32), tl.zeros([], tl.float32)
    else:
        loss, slope = _softplus(-positive), -1.0 / (1.0 + tl.exp(positive))
    return loss, slope


@triton.jit
def negative_loss(positive, negative, weight, margin, RANKING: tl.constexpr):
    """Return the loss of a negative, and its derivatives by the positive's and its own score."""
    if RANKING:
        gap = margin - positive + negative
        pull = tl.where(gap > 0, weight, 0.0)
        loss, release = pull * gap, -pull
    else:
        pull = weight / (1.0 + tl.exp(-negative))
        loss, release = weight * _softplus(negative), tl.zeros([], tl.float32)
    return loss, release, pull


def warps(block: int) -> int:
    """Return how many warps a program takes for rows of that many numbers."""
    return max(1, min(8, block // 128))
