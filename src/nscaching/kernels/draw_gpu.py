"""What a generator needs around its scores, on a GPU: chances and picks, and its baseline.

With torch they are some thirty small kernels, each of which takes longer to launch than to run.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nscaching.kernels.match_gpu import warps_for

#: Rewards that are read at once.
_REWARDS = 4096


@triton.jit
def _draw_softmax(logits, uniform, picked, chances, k, draws, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    logit = tl.load(logits + i * k + j, mask=j < k, other=float("-inf"))
    there = logit > float("-inf")
    top = tl.max(logit, axis=0)
    weight = tl.where(there, tl.exp(logit - tl.where(top > float("-inf"), top, 0.0)), 0.0)
    total = tl.sum(weight, axis=0)
    tl.store(chances + i * k + j, weight / tl.where(total > 0, total, 1.0), mask=j < k)
    reached = tl.cumsum(weight, axis=0)
    last = tl.max(tl.where(there, j, 0), axis=0)
    for draw in range(draws):
        wanted = tl.load(uniform + i * draws + draw) * total
        # What has no chance is not picked, however a parallel sum is rounded.
        place = tl.min(tl.where((reached > wanted) & (weight > 0), j, last), axis=0)
        tl.store(picked + i * draws + draw, place.to(tl.int64))


def draw_softmax(logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Do what :func:`nscaching.sampling.softmax.draw_softmax` says."""
    (count, k), draws = logits.shape, uniform.shape[1]
    picked = torch.empty(count, draws, dtype=torch.int64, device=logits.device)
    chances = torch.empty(count, k, device=logits.device)
    block = triton.next_power_of_2(k)
    if count:
        _draw_softmax[(count,)](
            logits.contiguous(), uniform.contiguous(), picked, chances, k, draws, block,
            num_warps=warps_for(block),
        )  # fmt: skip
    return picked, chances


@triton.jit
def _above_baseline(
    reward, weights, baseline, rewarded, advantage, count, k, row, column, keep,
    BLOCK: tl.constexpr,
):  # fmt: skip
    first = tl.load(rewarded) == 0
    before = tl.load(baseline)
    total = tl.zeros([BLOCK], tl.float32)
    number = tl.zeros([BLOCK], tl.float32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        counts = tl.load(weights + i, mask=i < count, other=0.0) > 0
        total += tl.load(reward + i // k * row + i % k * column, mask=counts, other=0.0)
        number += counts.to(tl.float32)
    mean = tl.sum(total, axis=0) / tl.maximum(tl.sum(number, axis=0), 1.0)
    before = tl.where(first, mean, before)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        counts = tl.load(weights + i, mask=i < count, other=0.0) > 0
        value = tl.load(reward + i // k * row + i % k * column, mask=counts, other=0.0)
        tl.store(advantage + i, tl.where(counts, value - before, 0.0), mask=i < count)
    tl.store(baseline, mean + keep * (before - mean))
    tl.store(rewarded, 1.0)


def above_baseline(
    reward: Tensor, weights: Tensor, baseline: Tensor, rewarded: Tensor, keep: float
) -> Tensor:
    """Do what :func:`nscaching.sampling.generators.above_baseline` says: in one program."""
    advantage = torch.empty(reward.shape, device=reward.device)
    count = reward.numel()
    block = min(_REWARDS, triton.next_power_of_2(max(1, count)))
    _above_baseline[(1,)](
        reward, weights.contiguous(), baseline, rewarded, advantage, count,
        max(1, reward.shape[1]), *reward.stride(), keep, block, num_warps=warps_for(block),
    )  # fmt: skip
    return advantage
