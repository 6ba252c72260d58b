"""Walks and the skip-gram step in plain NumPy: what the compiled kernels do, bit for bit.

:func:`kernel` chooses: the compiled form where there is Numba, else (``NSCACHING_PLAIN=1``) the one
of this module. Each takes the same arguments and writes into the same arrays; types and shapes are
those of ``kernels/walks_cpu.py`` and ``kernels/skipgram_cpu.py``. Random numbers are functions of a
seed, a row and a draw (SplitMix64), so that both forms draw the same.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from nscaching.kernels import availability
from nscaching.kernels.hashing import GOLDEN, MIX_1, MIX_2

Array = np.ndarray[Any, Any]
#: Proposals of a walk that may be refused, and draws that may fall into a window.
ATTEMPTS, REDRAWS = 24, 16
#: The loss of one window in so many is computed.
LOSS_EVERY = 8


def kernel(name: str) -> Callable[..., Any]:
    """Return a kernel of this package: ``walk`` or another function of this module."""
    if not availability.HAVE_NUMBA:
        plain: Callable[..., Any] = globals()[name]
        return plain
    module = "walks_cpu" if name == "walk" else "skipgram_cpu"
    compiled: Callable[..., Any] = getattr(import_module(f"nscaching.kernels.{module}"), name)
    return compiled


def _mix(bits: Array) -> Array:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(MIX_1)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(MIX_2)
    return np.asarray(bits ^ (bits >> np.uint64(31)))


def _streams(seed: np.uint64, rows: Array) -> Array:
    """Return where the random numbers of each row start."""
    return _mix(np.asarray(rows).astype(np.uint64) * np.uint64(GOLDEN) + np.uint64(seed))


def _bits(streams: Array, draws: Array | int) -> Array:
    """Return the 64 random bits of each stream at a draw, counted from 1."""
    return _mix(streams + np.asarray(draws).astype(np.uint64) * np.uint64(GOLDEN))


def _uniform(streams: Array, draws: Array) -> Array:
    return (_bits(streams, draws) >> np.uint64(11)) * 2.0**-53


# Walks -------------------------------------------------------------------------------------------


class _Rows:
    """The rows of a graph, for steps of many walks at once."""

    def __init__(self, offsets: Array, neighbours: Array, cumulative: Array) -> None:
        self.offsets, self.neighbours, self.even = offsets, neighbours, not len(cumulative)
        self.cumulative = cumulative if len(cumulative) else np.arange(len(neighbours) + 1.0)
        self.size = len(offsets) - 1
        owners = np.repeat(np.arange(self.size, dtype=np.int64), np.diff(offsets))
        self.keys = owners * self.size + neighbours

    def weight(self, start: Array, stop: Array) -> Array:
        """Return the weight of the neighbours between two places."""
        return np.asarray(self.cumulative[stop] - self.cumulative[start])

    def at(self, here: Array, share: Array) -> Array:
        """Return the neighbour where ``share`` (0 to the weight of the row) falls."""
        start, stop = self.offsets[here], self.offsets[here + 1]
        if self.even:
            place = start + share.astype(np.int64)
        else:
            target = self.cumulative[start] + share
            place = np.searchsorted(self.cumulative, target, side="right") - 1
        found: Array = self.neighbours[np.clip(place, start, stop - 1)].astype(np.int64)
        return found

    def find(self, before: Array, node: Array) -> tuple[Array, Array]:
        """Return the place of each edge, and whether there is one."""
        wanted = before * self.size + node
        place = np.searchsorted(self.keys, wanted).clip(max=len(self.keys) - 1)
        return place, self.keys[place] == wanted


def walk(offsets, neighbours, cumulative, directed, walks, p, q, seed, nodes):
    """Make walks by number, all of them a step at a time."""
    rows = _Rows(offsets, neighbours, cumulative)
    streams = _streams(seed, walks)
    here = walks % rows.size
    before, draws = np.full(len(walks), -1), np.ones(len(walks), dtype=np.int64)
    nodes[:] = -1
    nodes[:, 0] = here
    going = np.arange(len(walks))
    for step in range(1, nodes.shape[1]):
        going = going[offsets[here[going]] < offsets[here[going] + 1]]
        if len(going) == 0:
            break
        at, stream = here[going], streams[going]
        if step == 1 or (p == 1.0 and q == 1.0):
            share = _uniform(stream, draws[going])
            share = share * rows.weight(offsets[at], offsets[at + 1])
            node, draws[going] = rows.at(at, share), draws[going] + 1
        else:
            found = _biased_steps(rows, before[going], at, p, q, stream, draws[going])
            node, draws[going] = found
        before[going], here[going] = at, node
        nodes[going, step] = node


def _biased_steps(
    rows: _Rows, before: Array, here: Array, p: float, q: float, streams: Array, draws: Array
) -> tuple[Array, Array]:
    """Draw second-order steps by rejection; return the nodes and the draws used so far."""
    largest = max(1.0, 1.0 / q)
    envelope = rows.weight(rows.offsets[here], rows.offsets[here + 1]) * largest
    extra = np.zeros(len(here))
    if 1.0 / p > largest:  # what the way back has beyond the envelope is an outcome of its own
        back, there = rows.find(here, before)
        extra = np.where(there, rows.weight(back, back + 1) * (1.0 / p - largest), 0.0)
    found, draws, open_ = np.full(len(here), -1), draws.copy(), np.arange(len(here))
    for _ in range(ATTEMPTS):
        if len(open_) == 0:
            break
        share = _uniform(streams[open_], draws[open_]) * (envelope + extra)[open_]
        draws[open_] += 1
        returned = share >= envelope[open_]
        found[open_[returned]] = before[open_[returned]]
        open_, share = open_[~returned], share[~returned]
        node = rows.at(here[open_], share / largest)
        height = _uniform(streams[open_], draws[open_]) * largest
        draws[open_] += 1
        taken = height < _bias(rows, before[open_], node, p, q)
        found[open_[taken]] = node[taken]
        open_ = open_[~taken]
    for at in open_:  # by the definition: the factor of every neighbour
        found[at] = _exact_step(rows, before[at], here[at], p, q, streams[at], draws[at])
        draws[at] += 1
    return found, draws


def _bias(rows: _Rows, before: Array, node: Array, p: float, q: float) -> Array:
    """Return Node2vec's factor of a step to ``node`` after ``before``."""
    near = rows.find(before, node)[1]
    return np.where(node == before, 1.0 / p, np.where(near, 1.0, 1.0 / q))


def _exact_step(
    rows: _Rows, before: int, here: int, p: float, q: float, stream: Array, draw: int
) -> int:
    places = np.arange(rows.offsets[here], rows.offsets[here + 1])
    nodes = rows.neighbours[places].astype(np.int64)
    factors = _bias(rows, np.full(len(nodes), before), nodes, p, q)
    reached = np.cumsum(factors * rows.weight(places, places + 1))
    target = _uniform(np.asarray([stream]), np.asarray([draw]))[0] * reached[-1]
    return int(nodes[min(np.searchsorted(reached, target, side="right"), len(nodes) - 1)])


# Windows and negatives ---------------------------------------------------------------------------


def windows(walks, starts, window, centres, pairs, targets, weights):
    """Write the windows of walks: the centre, how many pairs it has, its contexts and counts."""
    lengths = np.diff(starts)
    owner = np.repeat(np.arange(len(walks)), lengths)
    at = np.arange(len(owner)) - starts[:-1][owner]
    near = np.concatenate([np.arange(-window, 0), np.arange(1, window + 1)]) + at[:, None]
    inside = (near >= 0) & (near < lengths[owner][:, None])
    nodes = np.where(inside, walks[owner[:, None], near.clip(0, walks.shape[1] - 1)], -1)
    same = (nodes[:, :, None] == nodes[:, None, :]) & inside[:, :, None]
    first = inside & ~np.tril(same, -1).any(2)
    order = np.argsort(~first, axis=1, kind="stable")
    centres[:], pairs[:] = walks[owner, at], inside.sum(1)
    wide = 2 * window
    targets[:, :wide] = np.take_along_axis(np.where(first, nodes, -1), order, 1)
    weights[:, :wide] = np.take_along_axis(same.sum(2), order, 1)


def _outside(centres: Array, targets: Array, wide: int, nodes: Array) -> Array:
    """Tell which nodes stand neither in the centre nor in the window. Shape: (m, k)."""
    inside = (nodes[:, :, None] == targets[:, None, :wide]).any(2)
    return np.asarray(~inside & (nodes != centres[:, None]))


def _alias_draw(threshold: Array, alias: Array, bits: Array) -> Array:
    share = (bits >> np.uint64(33)) * np.uint64(len(threshold))
    place = (share >> np.uint64(31)).astype(np.int64)
    height = (bits & np.uint64(0xFFFFFF)).astype(np.float32) * np.float32(2.0**-24)
    return np.where(height < threshold[place], place, alias[place])


def draw_noise(centres, targets, wide, threshold, alias, seed, negatives):
    """Draw nodes outside each window from a noise distribution kept as an alias table."""
    streams, draws = _streams(seed, np.arange(len(centres))), np.zeros(len(centres), np.int64)
    negatives[:] = -1
    for column in range(negatives.shape[1]):
        open_ = np.arange(len(centres))
        for _ in range(REDRAWS):
            draws[open_] += 1
            node = _alias_draw(threshold, alias, _bits(streams[open_], draws[open_]))
            taken = _outside(centres[open_], targets[open_], wide, node[:, None])[:, 0]
            negatives[open_[taken], column] = node[taken]
            open_ = open_[~taken]
            if len(open_) == 0:
                break


def draw_candidates(rows, offsets, known, threshold, alias, seed, candidates):
    """Draw candidates for cache rows from the noise, -1 for known positives."""
    draws = np.arange(1, candidates.shape[1] + 1)
    drawn = _alias_draw(threshold, alias, _bits(_streams(seed, rows)[:, None], draws))
    size = len(offsets) - 1
    owners = np.repeat(np.arange(size, dtype=np.int64), np.diff(offsets))
    excluded = np.isin(rows[:, None] * size + drawn, owners * size + known)
    candidates[:] = np.where(excluded, -1, drawn)


def take_outside(centres, targets, wide, drawn, exists, negatives):
    """Keep the first draws outside their window."""
    fits = exists & _outside(centres, targets, wide, drawn)
    order = np.argsort(~fits, axis=1, kind="stable")[:, : negatives.shape[1]]
    kept = np.take_along_axis(np.where(fits, drawn, -1), order, 1)
    negatives[:] = -1
    negatives[:, : kept.shape[1]] = kept


# The gradient ------------------------------------------------------------------------------------


def window_gradients(
    node_table, context_table, centres, targets, weights, pairs, wide, scale, gradient, losses
):
    """Write gradients of the centres; ``weights`` become the slopes of the scores."""
    there, vectors = targets >= 0, context_table[targets.clip(0)]
    scores = np.einsum("md,mkd->mk", node_table[centres], vectors)
    sign = np.where(np.arange(targets.shape[1]) < wide, np.float32(-1), np.float32(1))
    counts = np.where(np.arange(targets.shape[1]) < wide, weights, pairs[:, None])
    counts = np.where(there, counts, np.float32(0))
    signed = sign * scores
    loss = (counts * np.logaddexp(np.float32(0), signed)).sum(1)
    losses[:] = loss[::LOSS_EVERY]
    weights[:] = np.float32(scale) * sign * counts / (1 + np.exp(-signed))
    gradient[:] = np.einsum("mk,mkd->md", weights, vectors)


def fill_alias(threshold, alias):
    """Make an alias table (Vose) in place, from weights whose mean is 1."""
    small, large = list(np.flatnonzero(threshold < 1)), list(np.flatnonzero(threshold >= 1))
    while small and large:
        few, many = small.pop(), large[-1]
        alias[few] = many
        threshold[many] -= 1.0 - threshold[few]
        if threshold[many] < 1.0:
            small.append(large.pop())
    threshold[[*large, *small]] = 1.0
