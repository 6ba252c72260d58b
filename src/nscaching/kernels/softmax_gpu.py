"""The softmax over all entities on a GPU: its normaliser and its gradient, one pass each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096


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
    whole = tl.sum(added * tl.exp(largest - top), axis=0)
    tl.store(total + i, top + tl.log(whole))


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
    block = min(_BLOCK, triton.next_power_of_2(max(1, logits.shape[1])))
    if len(logits):
        _logsumexp[(len(logits),)](
            logits, total, logits.shape[1], logits.stride(0), block, num_warps=8
        )
    return total


def softmax_gradient(
    logits: Tensor, total: Tensor, targets: Tensor, first: int, sharp: float, spread: float
) -> Tensor:
    """Turn logits of a block of entities into the gradient of their scores, in place. (q, n)."""
    count = logits.shape[1]
    block = min(_BLOCK, triton.next_power_of_2(max(1, count)))
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
