"""The skip-gram step on the CPU: windows, negatives outside them, and their gradients.

A window is a centre and what stands around it, each node once with its count. Every pair of a
window has the same N negatives, so a window costs as many dot products as it has distinct nodes,
plus N. Gradients of the context table are left as slopes, which the optimiser adds up as it moves a
row. Compiled on first use and kept on disk.

A row of ``targets`` (windows, W + N) holds the context nodes in its first W places and the
negatives in the others, -1 where there is none; ``weights`` has the counts of the contexts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

from nscaching.kernels.cache_cpu import hashed, holds, stream_of
from nscaching.kernels.numba_tools import (
    Array,
    exact_inline,
    exact_parallel,
    parallel,
    sigmoid,
    softplus,
)

#: Draws that may fall into the window before a negative is left out, as in ``nodes/plain.py``.
_REDRAWS = 16
#: The loss of one window in so many is computed.
LOSS_EVERY = 8


@exact_parallel
def windows(
    walks: Array,
    starts: Array,
    window: int,
    centres: Array,
    pairs: Array,
    targets: Array,
    weights: Array,
) -> None:
    """Write the windows of walks: the centre, how many pairs it has, its contexts and counts.

    ``starts`` says where the windows of a walk begin; it has as many as it has nodes, or none.
    Shapes: walks (b, length), starts (b + 1,), centres, pairs (m,), targets, weights (m, W + N).
    """
    wide = 2 * window
    for i in prange(walks.shape[0]):
        length = starts[i + 1] - starts[i]
        for at in range(length):
            row = starts[i] + at
            centres[row] = walks[i, at]
            first, stop = max(0, at - window), min(length, at + window + 1)
            pairs[row] = stop - first - 1
            used = 0
            for near in range(first, stop):
                if near == at:
                    continue
                node = walks[i, near]
                place = 0
                while place < used and targets[row, place] != node:
                    place += 1
                if place < used:
                    weights[row, place] += np.float32(1)
                else:
                    targets[row, used] = node
                    weights[row, used] = np.float32(1)
                    used += 1
            for place in range(used, wide):
                targets[row, place] = -1


@exact_inline
def _inside(targets: Array, row: int, wide: int, node: int) -> bool:
    """Tell whether a node stands in a window."""
    for place in range(wide):
        if targets[row, place] == node:
            return True
        if targets[row, place] < 0:
            return False
    return False


@exact_inline
def _draw(threshold: Array, alias: Array, stream: np.uint64, draw: int) -> Any:
    """Return the draw-th node of a stream from an alias table."""
    bits = hashed(stream, draw - 1)
    place = np.int64(((bits >> np.uint64(33)) * np.uint64(threshold.shape[0])) >> np.uint64(31))
    height = np.float32(bits & np.uint64(0xFFFFFF)) * np.float32(2.0**-24)
    return place if height < threshold[place] else np.int64(alias[place])


@exact_parallel
def draw_noise(
    centres: Array,
    targets: Array,
    wide: int,
    threshold: Array,
    alias: Array,
    seed: np.uint64,
    negatives: Array,
) -> None:
    """Draw nodes outside each window from a noise distribution kept as an alias table.

    Shapes: centres (m,), targets (m, W + N), threshold, alias (n,), negatives (m, k).
    """
    for i in prange(centres.shape[0]):
        stream = stream_of(seed, i)
        draw = 0
        for j in range(negatives.shape[1]):
            negatives[i, j] = -1
            for _ in range(_REDRAWS):
                draw += 1
                node = _draw(threshold, alias, stream, draw)
                if node != centres[i] and not _inside(targets, i, wide, node):
                    negatives[i, j] = node
                    break


@exact_parallel
def draw_candidates(
    rows: Array,
    offsets: Array,
    known: Array,
    threshold: Array,
    alias: Array,
    seed: np.uint64,
    candidates: Array,
) -> None:
    """Draw candidates for cache rows from the noise, -1 for known positives.

    Shapes: rows (b,), offsets (n + 1,) into known, threshold, alias (n,), candidates (b, k).
    """
    for i in prange(rows.shape[0]):
        row = rows[i]
        stream = stream_of(seed, row)
        for j in range(candidates.shape[1]):
            node = _draw(threshold, alias, stream, j + 1)
            known_answer = holds(known, offsets[row], offsets[row + 1], node)
            candidates[i, j] = -1 if known_answer else node


@exact_parallel
def take_outside(
    centres: Array, targets: Array, wide: int, drawn: Array, exists: Array, negatives: Array
) -> None:
    """Keep the first draws outside their window. Shapes: drawn (m, k), negatives (m, N)."""
    for i in prange(centres.shape[0]):
        used = 0
        for j in range(drawn.shape[1]):
            if used == negatives.shape[1]:
                break
            node = drawn[i, j]
            if exists[i, j] and node != centres[i] and not _inside(targets, i, wide, node):
                negatives[i, used] = node
                used += 1
        for place in range(used, negatives.shape[1]):
            negatives[i, place] = -1


@parallel
def window_gradients(
    node_table: Array,
    context_table: Array,
    centres: Array,
    targets: Array,
    weights: Array,
    pairs: Array,
    wide: int,
    scale: float,
    gradient: Array,
    losses: Array,
) -> None:
    """Turn the weights into slopes of the loss, and give the gradients of the centres.

    The loss of a window is ``sum_v count(v) (softplus(-u.v) + sum_n softplus(u.n))``, each term
    times ``scale``. It is only looked at, so every ``LOSS_EVERY``-th window will do: logarithms
    cost more than the rest. Shapes: pairs (m,), gradient (m, d), losses (m / LOSS_EVERY,).
    """
    width = node_table.shape[1]
    for i in prange(centres.shape[0]):
        centre = centres[i]
        total = np.float32(0)
        for d in range(width):
            gradient[i, d] = np.float32(0)
        for j in range(targets.shape[1]):
            node = targets[i, j]
            if node < 0:
                weights[i, j] = np.float32(0)
                continue
            score = np.float32(0)
            for d in range(width):
                score += node_table[centre, d] * context_table[node, d]
            weight = weights[i, j]
            if j < wide:
                slope = -weight * sigmoid(-score)
            else:
                weight = pairs[i]
                slope = weight * sigmoid(score)
            if i % LOSS_EVERY == 0:
                total += weight * softplus(-score if j < wide else score)
            slope *= np.float32(scale)
            weights[i, j] = slope
            for d in range(width):
                gradient[i, d] += slope * context_table[node, d]
        if i % LOSS_EVERY == 0:
            losses[i // LOSS_EVERY] = total


@njit(cache=True, nogil=True)
def fill_alias(threshold: Array, alias: Array) -> None:
    """Make an alias table (Vose) in place, from weights whose mean is 1. Shapes: (n,), (n,)."""
    size = threshold.shape[0]
    small, large = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    below, above = 0, 0
    for i in range(size):
        if threshold[i] < 1.0:
            small[below] = i
            below += 1
        else:
            large[above] = i
            above += 1
    while below > 0 and above > 0:
        below -= 1
        few, many = small[below], large[above - 1]
        alias[few] = many
        threshold[many] -= 1.0 - threshold[few]
        if threshold[many] < 1.0:
            above -= 1
            small[below] = many
            below += 1
    for i in range(above):
        threshold[large[i]] = 1.0
    for i in range(below):
        threshold[small[i]] = 1.0
