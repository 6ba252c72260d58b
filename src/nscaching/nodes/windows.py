"""What a step learns from: windows of walks, or edges for LINE, streamed batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from nscaching.nodes.walks import Walker


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
    def negatives(self) -> npt.NDArray[np.int32]:
        """The places for negatives; shape: (m, negatives)."""
        return self.targets[:, self.width :]


class Stream(Protocol):
    """A source of windows that goes through all it has once an epoch."""

    steps: int  #: batches of an epoch

    def epoch(self, generator: torch.Generator) -> Iterator[Windows]:
        """Yield the batches of one epoch in a new order."""

    def frequencies(self) -> npt.NDArray[Any]:
        """Return how often each node occurs. Shape: (nodes,)."""


class WalkWindows:
    """The windows of all walks: walks in random order, some of them a step."""

    def __init__(self, walker: Walker, window: int, negatives: int, batch_size: int) -> None:
        self.walker, self.window, self.negatives = walker, window, negatives
        self.walks_a_step = max(1, batch_size // walker.length)
        self.steps = -(-walker.count // self.walks_a_step)

    def epoch(self, generator: torch.Generator) -> Iterator[Windows]:
        """Yield the windows of all walks."""
        order = torch.randperm(self.walker.count, generator=generator).numpy()
        for start in range(0, len(order), self.walks_a_step):
            yield self.windows(self.walker.walk(order[start : start + self.walks_a_step]))

    def windows(self, walks: npt.NDArray[np.int32]) -> Windows:
        """Return the windows of some walks; a walk of one node has none."""
        from nscaching.nodes import step_kernels

        lengths = (walks >= 0).sum(1)
        lengths[lengths < 2] = 0
        starts = np.concatenate([[0], np.cumsum(lengths)])
        shape = (int(starts[-1]), 2 * self.window + self.negatives)
        centres, pairs = np.empty(shape[0], dtype=np.int64), np.empty(shape[0], dtype=np.float32)
        targets, weights = np.empty(shape, dtype=np.int32), np.empty(shape, dtype=np.float32)
        step_kernels.windows(walks, starts, self.window, centres, pairs, targets, weights)
        return Windows(centres, pairs, targets, weights, 2 * self.window)

    def frequencies(self) -> npt.NDArray[np.int64]:
        """Return how often each node stands in the walks."""
        return self.walker.frequencies()
