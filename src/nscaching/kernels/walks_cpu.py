"""Random walks on the CPU, straight from the rows of a graph: no table of transitions.

The numbers a walk draws are a function of the seed, the walk and the draw (SplitMix64): a walk is
the same whoever makes it, on however many threads, and can be made again at any time instead of
being kept. Compiled on first use and kept on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from nscaching.kernels.cache_cpu import hashed, stream_of
from nscaching.kernels.numba_tools import Array, exact_inline, exact_parallel

#: Proposals that may be refused before a step is drawn by looking at all neighbours. Proposals are
#: independent, so giving up on them changes no probability.
_ATTEMPTS = 24


@exact_inline
def _uniform(stream: np.uint64, draw: int) -> Any:
    """Return the draw-th number of a stream, in [0, 1)."""
    return (hashed(stream, draw - 1) >> np.uint64(11)) * 2.0**-53


@exact_inline
def _place(cumulative: Array, start: Any, stop: Any, share: float) -> Any:
    """Return where ``share`` (0 to the weight of the row) falls in a row of neighbours."""
    if cumulative.shape[0] == 0:
        return min(start + np.int64(share), stop - 1)
    target = cumulative[start] + share
    last = stop - 1
    while start < last:
        middle = (start + last) >> 1
        if cumulative[middle + 1] > target:
            last = middle
        else:
            start = middle + 1
    return start


@exact_inline
def _weight(cumulative: Array, start: int, stop: int) -> Any:
    """Return the weight of the neighbours between two places."""
    if cumulative.shape[0] == 0:
        return float(stop - start)
    return cumulative[stop] - cumulative[start]


@exact_inline
def _find(neighbours: Array, start: Any, stop: Any, node: int) -> Any:
    """Return the place of a node in an ascending row of neighbours, -1 where it has none."""
    end = stop
    while start < stop:
        middle = (start + stop) >> 1
        if neighbours[middle] < node:
            start = middle + 1
        else:
            stop = middle
    return start if start < end and neighbours[start] == node else -1


# A graph is a tuple here: offsets, neighbours, cumulative weights, and whether it is directed.


@exact_inline
def _adjacent(graph: Any, before: int, node: int) -> bool:
    """Tell whether there is an edge from ``before`` to ``node``; the shorter row is searched."""
    offsets, neighbours, _, directed = graph
    start, stop = offsets[before], offsets[before + 1]
    if directed or stop - start <= offsets[node + 1] - offsets[node]:
        return _find(neighbours, start, stop, node) >= 0
    return _find(neighbours, offsets[node], offsets[node + 1], before) >= 0


@exact_inline
def _bias(graph: Any, before: int, node: int, p: float, q: float) -> Any:
    """Return Node2vec's factor of a step to ``node`` after ``before``."""
    if node == before:
        return 1.0 / p
    return 1.0 if _adjacent(graph, before, node) else 1.0 / q


@exact_inline
def _exact_step(graph: Any, before: int, here: int, p: float, q: float, uniform: float) -> Any:
    """Draw a step by the definition: the factor of every neighbour."""
    offsets, neighbours, cumulative, _ = graph
    start, stop = offsets[here], offsets[here + 1]
    total = 0.0
    for at in range(start, stop):
        factor = _bias(graph, before, neighbours[at], p, q)
        total += factor * _weight(cumulative, at, at + 1)
    target = uniform * total
    for at in range(start, stop):
        factor = _bias(graph, before, neighbours[at], p, q)
        target -= factor * _weight(cumulative, at, at + 1)
        if target < 0:
            return neighbours[at]
    return neighbours[stop - 1]


@exact_inline
def _biased_step(
    graph: Any, before: int, here: int, p: float, q: float, stream: np.uint64, draw: int
) -> Any:
    """Draw a second-order step by rejection; returns the node and the draws used so far.

    A neighbour is proposed by its weight and kept with its factor over the largest one. The way
    back may have a larger factor than that (a small p): what exceeds is an outcome of its own.
    """
    offsets, neighbours, cumulative, _ = graph
    start, stop = offsets[here], offsets[here + 1]
    largest, always = max(1.0, 1.0 / q), min(1.0, 1.0 / q)
    envelope = _weight(cumulative, start, stop) * largest
    extra = 0.0
    back = _find(neighbours, start, stop, before) if 1.0 / p > largest else -1
    if back >= 0:
        extra = _weight(cumulative, back, back + 1) * (1.0 / p - largest)
    for _ in range(_ATTEMPTS):
        share = _uniform(stream, draw) * (envelope + extra)
        draw += 1
        if share >= envelope:
            return before, draw
        node = neighbours[_place(cumulative, start, stop, share / largest)]
        height = _uniform(stream, draw) * largest
        draw += 1
        if node == before:
            if height < 1.0 / p:
                return node, draw
        elif height < always:
            return node, draw
        else:
            near = _adjacent(graph, before, node)
            if height < (1.0 if near else 1.0 / q):
                return node, draw
    uniform = _uniform(stream, draw)
    return _exact_step(graph, before, here, p, q, uniform), draw + 1


@exact_parallel
def walk(
    offsets: Array,
    neighbours: Array,
    cumulative: Array,
    directed: bool,
    walks: Array,
    p: float,
    q: float,
    seed: np.uint64,
    nodes: Array,
) -> None:
    """Make walks by number; walk w starts at node w modulo the number of nodes.

    A walk that comes to a node without a way out ends there; -1 fills the rest. ``cumulative`` is
    the running sum of the weights, or empty where all weigh the same.
    Shapes: offsets (n + 1,), neighbours (e,), cumulative (e + 1,) or (0,), walks (b,),
    nodes (b, length).
    """
    graph = offsets, neighbours, cumulative, directed
    length = nodes.shape[1]
    first_order = p == 1.0 and q == 1.0
    for i in prange(walks.shape[0]):
        stream = stream_of(seed, walks[i])
        before: Any = np.int64(-1)
        here: Any = np.int64(walks[i] % (offsets.shape[0] - 1))
        nodes[i, 0] = here
        draw = 1
        for step in range(1, length):
            start, stop = offsets[here], offsets[here + 1]
            if start == stop:
                nodes[i, step:] = -1
                break
            if before < 0 or first_order:
                share = _uniform(stream, draw) * _weight(cumulative, start, stop)
                draw += 1
                node = np.int64(neighbours[_place(cumulative, start, stop, share)])
            else:
                found, draw = _biased_step(graph, before, here, p, q, stream, draw)
                node = np.int64(found)
            before, here = here, node
            nodes[i, step] = node
