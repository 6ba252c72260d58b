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
