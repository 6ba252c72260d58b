"""Walks over a graph, made when they are needed and never kept as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from nscaching.nodes.graph import NodeGraph
from nscaching.nodes.plain import kernel

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
        kernel("walk")(
            self.graph.offsets,
            self.graph.neighbours,
            self._cumulative,
            self.graph.directed,
            numbers,
            self.p,
            self.q,
            np.uint64(self.seed),
            nodes,
        )
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
