"""Work on a GPU that is recorded once and then replayed: one launch instead of many."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

#: Several runs may train in threads of one process: while one captures, no other may capture or
#: give memory back to the device.
CAPTURE_LOCK = threading.Lock()


def capture(work: Callable[[], None], graph: torch.cuda.CUDAGraph, pool: Any = None) -> None:
    """Record what work does to its tensors, without doing it; ``pool`` is memory that it shares."""
    with CAPTURE_LOCK:
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
            work()
