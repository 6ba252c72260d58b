"""The paper's sigma: a softmax with a temperature over rescaled scores (eq:sigma).

Invalid entries (padding, duplicates, known positives) are masked everywhere and never drawn.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nscaching.kernels.constants import HIGH_QUANTILE, LARGEST_SCORE, LOW_QUANTILE
from nscaching.kernels.registry import kernel

__all__ = [
    "LARGEST_SCORE",
    "draw_at",
    "draw_softmax",
    "keep_without_replacement",
    "log_weights",
    "rescale",
]


def rescale(scores: Tensor, valid: Tensor) -> Tensor:
    """Map the scores of each row to [0, 1] between their 20th and 80th percentile.

    Percentiles are over the valid entries, with linear interpolation (paper, Section 5.1). Where
    both percentiles agree, what lies above them is 1 and the rest 0. Shapes: (b, k) -> (b, k).
    """
    ordered = scores.masked_fill(~valid, math.inf).sort(dim=1).values
    last = (valid.sum(1, keepdim=True) - 1).clamp_min(0)
    low = _quantile(ordered, last, LOW_QUANTILE)
    high = _quantile(ordered, last, HIGH_QUANTILE)
    spread = high - low
    inside = (scores - low) / torch.where(spread > 0, spread, 1)
    scaled = torch.where(spread > 0, inside.clamp(0, 1), (scores > high).to(scores.dtype))
    return scaled.masked_fill(~valid, 0)


def _quantile(ordered: Tensor, last: Tensor, q: float) -> Tensor:
    """Return the q-quantile of rows sorted ascending, ``last`` the index of the last valid one."""
    place = last * q
    below = place.floor().long()
    above = place.ceil().long()
    low, high = ordered.gather(1, below), ordered.gather(1, above)
    return torch.where(below == above, low, low + (high - low) * (place - below))


def log_weights(scores: Tensor, valid: Tensor, alpha: float, rescaling: str) -> Tensor:
    """Return the logarithm of sigma up to a constant per row, ``-inf`` where invalid.

    Shapes: (b, k) -> (b, k). ``alpha = inf`` has no weights: see :func:`keep_without_replacement`.
    """
    if alpha == 0:
        logits = torch.zeros_like(scores)
    elif rescaling == "quantile":
        logits = alpha * rescale(scores, valid)
    else:
        logits = alpha * scores
    return logits.masked_fill(~valid, -math.inf)


def draw_at(uniform: Tensor, scores: Tensor, valid: Tensor, alpha: float, rescaling: str) -> Tensor:
    """Draw positions of each row with replacement, with probability sigma.

    ``uniform`` has a number in [0, 1) for each draw. Shapes: (b, count), (b, k) -> (b, count). A
    row without a valid entry gives position 0.
    """
    if alpha == math.inf:
        hardest = scores.masked_fill(~valid, -math.inf).argmax(1, keepdim=True)
        return hardest.expand_as(uniform)
    logits = log_weights(scores, valid, alpha, rescaling)
    top = logits.amax(1, keepdim=True).clamp_min(torch.finfo(logits.dtype).min)
    cumulative = (logits - top).exp().cumsum(1)
    place = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
    last_valid = (valid * torch.arange(1, valid.shape[1] + 1, device=valid.device)).amax(1) - 1
    return place.minimum(last_valid.clamp_min(0).unsqueeze(1))


@kernel(cpu="draw_cpu", gpu="draw_gpu")
def draw_softmax(logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Draw positions of each row by the softmax of its logits, with replacement.

    Logits of -inf are invalid. Returns the positions and the chances of all; a row without a valid
    entry gives position 0 and no chances. Shapes: (b, k), (b, count) -> (b, count), (b, k).
    """
    picked = draw_at(uniform, logits, logits > -math.inf, 1.0, "none")
    return picked, logits.softmax(1).nan_to_num(0.0)


def keep_without_replacement(
    scores: Tensor, valid: Tensor, alpha: float, rescaling: str, count: int, gumbel: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw ``count`` positions per row without replacement, with probability sigma at each draw.

    Adding Gumbel noise to the log weights and keeping the largest is exactly that. Returns the
    positions in ascending order, the invalid ones last, and which are valid.
    Shapes: (b, k) -> (b, count) twice.
    """
    if alpha == math.inf:
        keys = scores.masked_fill(~valid, -math.inf)
    else:
        keys = log_weights(scores, valid, alpha, rescaling) + gumbel
    width = keys.shape[1]
    kept = keys.topk(min(count, width), dim=1)
    places = kept.indices.masked_fill(kept.values == -math.inf, width).sort(dim=1).values
    return places.clamp_max(width - 1), places < width
