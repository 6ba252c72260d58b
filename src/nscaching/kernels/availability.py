"""What this machine can run faster than plain torch.

Imported before torch: how long idle threads spin is decided when the OpenMP library loads.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

# Threads that spin for long after every operation fight with any other process for the cores: with
# two processes on two cores a step took ten times as long. A short spin costs nothing when alone.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# Large tensors on large pages: a step over all entities spent a third of its time on page faults.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

_ALLOWED = not os.environ.get("NSCACHING_PLAIN")
#: Whether the CPU kernels can be compiled; ``NSCACHING_PLAIN=1`` turns all kernels off.
HAVE_NUMBA = _ALLOWED and importlib.util.find_spec("numba") is not None
#: Whether the GPU kernels can be compiled.
HAVE_TRITON = _ALLOWED and importlib.util.find_spec("triton") is not None


def cpu_kernels_are_compiled(kernel: str = "ada*_cpu.*move") -> bool:
    """Tell whether Numba finds a kernel of an earlier run on disk; a pattern of its name.

    Every run moves its tables, with Adam or with Adagrad.
    """
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parent)
    return any(folder.rglob(f"{kernel}*.nbi"))
