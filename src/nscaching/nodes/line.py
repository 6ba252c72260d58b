"""LINE: pairs are edges, drawn by their weight (Tang et al., 2015).

First order: both ends share one table. Second order: an end and the context vector of the other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from nscaching.nodes.graph import NodeGraph
from nscaching.nodes.samplers import Noise
from nscaching.nodes.windows import Windows


class EdgeWindows:
    """Edges as windows of one context; an epoch draws ``count`` of them."""

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
