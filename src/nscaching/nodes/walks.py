"""What a step learns from: windows of walks, or edges for LINE; and the noise around them.

Walks are made when they are needed and never kept as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from nscaching.kernels.hashing import new_seed, unsigned
from nscaching.nodes.graph import NodeGraph
from nscaching.nodes.plain import kernel
from nscaching.sampling.known import KnownPositives

Walks = npt.NDArray[np.int32]
#: Nodes of walks made at once when all walks are gone through.
_BLOCK = 1 << 22


class Walker:
    """The numbered walks of a graph: ``walks_per_node`` from every node.

    The same graph, seed and number give the same walk, so models are compared on the same walks
    by giving them the same seed.
    """

    def __init__(
        self,
        graph: NodeGraph,
        *,
        walks_per_node: int = 10,
        length: int = 80,
        p: float = 1.0,
        q: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.graph, self.length, self.p, self.q, self.seed = graph, length, p, q, seed
        self.count = walks_per_node * len(graph)
        self._cumulative = np.zeros(0)
        if graph.weights is not None:
            self._cumulative = np.concatenate([[0.0], np.cumsum(graph.weights, dtype=np.float64)])

    def walk(self, numbers: npt.NDArray[np.int64]) -> Walks:
        """Return the walks of some numbers, -1 after their end. Shape: (b, length)."""
        nodes = np.empty((len(numbers), self.length), dtype=np.int32)
        graph = self.graph
        rows = (graph.offsets, graph.neighbours, self._cumulative, graph.directed)
        kernel("walk")(*rows, numbers, self.p, self.q, np.uint64(self.seed), nodes)
        return nodes

    def blocks(self, advance: Callable[[int], None] | None = None) -> Iterator[Walks]:
        """Yield all walks, a block at a time; ``advance`` is told how many walks are done."""
        size = max(1, _BLOCK // self.length)
        for start in range(0, self.count, size):
            numbers = np.arange(start, min(start + size, self.count), dtype=np.int64)
            yield self.walk(numbers)
            if advance is not None:
                advance(len(numbers))

    def frequencies(self, advance: Callable[[int], None] | None = None) -> npt.NDArray[np.int64]:
        """Return how often each node stands in all walks. Shape: (nodes,)."""
        counts = np.zeros(len(self.graph), dtype=np.int64)
        for block in self.blocks(advance):
            kernel("count_nodes")(block, counts)
        return counts


@dataclass(frozen=True)
class Windows:
    """Centres with what stands around them; the last places of a row are for negatives.

    The first ``width`` places of a row hold distinct nodes and, in ``weights``, how often each
    stands in the window; -1 where there is none.
    """

    centres: npt.NDArray[np.int64]  #: shape: (m,)
    pairs: npt.NDArray[np.float32]  #: how many contexts a window has, repeats counted; shape: (m,)
    targets: npt.NDArray[np.int32]  #: shape: (m, width + negatives)
    weights: npt.NDArray[np.float32]  #: shape: (m, width + negatives)
    width: int

    @property
    def around(self) -> tuple[Any, ...]:
        """What a negative must not be among: centres, targets and their width."""
        return self.centres, self.targets, self.width

    @property
    def negatives(self) -> npt.NDArray[np.int32]:
        """The places for negatives; shape: (m, negatives)."""
        return self.targets[:, self.width :]


class Noise:
    """A distribution over the nodes, as an alias table: one draw reads one entry."""

    def __init__(self, weights: npt.NDArray[np.float64]) -> None:
        total = weights.sum()
        scaled = weights * (len(weights) / total) if total > 0 else np.ones(len(weights))
        threshold = scaled.astype(np.float64)
        self.alias = np.arange(len(scaled), dtype=np.int32)
        kernel("fill_alias")(threshold, self.alias)
        self.threshold = threshold.astype(np.float32)

    def draw(
        self, windows: Windows, out: npt.NDArray[np.int32], generator: torch.Generator
    ) -> None:
        """Draw nodes outside each window. Shape of ``out``: (m, k)."""
        seed = unsigned(new_seed(generator))
        kernel("draw_noise")(*windows.around, self.threshold, self.alias, seed, out)

    def candidates(
        self, rows: torch.Tensor, count: int, known: KnownPositives, seed: torch.Tensor
    ) -> npt.NDArray[np.int64]:
        """Draw candidates for cache rows, -1 for known positives. Shape: (b, count)."""
        drawn = np.empty((len(rows), count), dtype=np.int64)
        arrays = (each.numpy() for each in (rows, known.offsets, known.answers))
        kernel("draw_candidates")(*arrays, self.threshold, self.alias, unsigned(seed), drawn)
        return drawn

    def draw_plain(self, count: int, generator: torch.Generator) -> npt.NDArray[np.int64]:
        """Draw without regard to windows. Shape: (count,)."""
        place = torch.randint(len(self.alias), (count,), generator=generator).numpy()
        height = torch.rand(count, generator=generator).numpy()
        return np.where(height < self.threshold[place], place, self.alias[place])


class Stream(Protocol):
    """A source of windows that goes through all it has once per epoch."""

    steps: int  #: batches of an epoch

    def epoch(self, generator: torch.Generator) -> Iterator[Windows]:
        """Yield the batches of one epoch in a new order."""

    def frequencies(self) -> npt.NDArray[Any]:
        """Return how often each node occurs. Shape: (nodes,)."""


class WalkWindows:
    """The windows of all walks: walks in random order, some of them per step."""

    def __init__(self, walker: Walker, window: int, negatives: int, batch_size: int) -> None:
        self.walker, self.window, self.negatives = walker, window, negatives
        self.walks_per_step = max(1, batch_size // walker.length)
        self.steps = -(-walker.count // self.walks_per_step)

    def epoch(self, generator: torch.Generator) -> Iterator[Windows]:
        """Yield the windows of all walks."""
        order = torch.randperm(self.walker.count, generator=generator).numpy()
        for start in range(0, len(order), self.walks_per_step):
            yield self.windows(self.walker.walk(order[start : start + self.walks_per_step]))

    def windows(self, walks: npt.NDArray[np.int32]) -> Windows:
        """Return the windows of some walks; a walk of one node has none."""
        lengths = (walks >= 0).sum(1)
        lengths[lengths < 2] = 0
        starts = np.concatenate([[0], np.cumsum(lengths)])
        shape = (int(starts[-1]), 2 * self.window + self.negatives)
        centres, pairs = np.empty(shape[0], dtype=np.int64), np.empty(shape[0], dtype=np.float32)
        targets, weights = np.empty(shape, dtype=np.int32), np.empty(shape, dtype=np.float32)
        kernel("windows")(walks, starts, self.window, centres, pairs, targets, weights)
        return Windows(centres, pairs, targets, weights, 2 * self.window)

    def frequencies(self) -> npt.NDArray[np.int64]:
        """Return how often each node stands in the walks."""
        return self.walker.frequencies()


class EdgeWindows:
    """LINE: edges as windows of one context, drawn by weight; an epoch draws ``count`` of them.

    First order: both ends share one table. Second order: an end and the other's context vector
    (Tang et al., 2015).
    """

    def __init__(self, graph: NodeGraph, negatives: int, batch_size: int, count: int) -> None:
        self.negatives, self.batch_size = negatives, batch_size
        self.steps = -(-count // batch_size) if len(graph.neighbours) else 0
        self._arcs = graph.arcs()
        self._graph = graph
        weights = graph.weights
        self._noise = None if weights is None else Noise(weights.astype(np.float64))

    def epoch(self, generator: torch.Generator) -> Iterator[Windows]:
        """Yield batches of edges, drawn with replacement."""
        for _ in range(self.steps):
            arcs = self._arcs[self._draw(generator)]
            shape = (len(arcs), 1 + self.negatives)
            targets = np.full(shape, -1, dtype=np.int32)
            targets[:, 0] = arcs[:, 1]
            weights = np.ones(shape, dtype=np.float32)
            pairs = np.ones(len(arcs), dtype=np.float32)
            yield Windows(np.ascontiguousarray(arcs[:, 0]), pairs, targets, weights, 1)

    def _draw(self, generator: torch.Generator) -> npt.NDArray[np.int64]:
        """Draw places in the rows of the graph, by weight."""
        if self._noise is None:
            return torch.randint(len(self._arcs), (self.batch_size,), generator=generator).numpy()
        return self._noise.draw_plain(self.batch_size, generator)

    def frequencies(self) -> npt.NDArray[np.float64]:
        """Return the weight of the edges that end in each node. Shape: (nodes,)."""
        weights = self._graph.weights
        return np.bincount(self._graph.neighbours, weights, len(self._graph)).astype(np.float64)
