"""Work on a GPU that is recorded once and then replayed: one launch instead of many."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

#: Several runs may train in threads of one process: while one captures, no other may capture or
#: give memory back to the device.
CAPTURE_LOCK = threading.Lock()


def capture(work: Callable[[], None], graph: torch.cuda.CUDAGraph) -> None:
    """Record what work does to its tensors, without doing it."""
    with CAPTURE_LOCK:
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            work()


class Replayed:
    """Work on tensors that stay where they are: done as it comes once, replayed from then on."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = False

    def __call__(self) -> None:
        """Do the work."""
        if not self._warm:
            self._work()
            self._warm = True
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            capture(self._work, self._graph)
        self._graph.replay()
