"""How the CPU loops of this room are compiled: on first use, and kept on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]
#: A kernel: its ``prange`` runs on all threads.
parallel = njit(parallel=True, fastmath=True, cache=True, nogil=True, error_model="numpy")
#: A part of kernels.
inline = njit(fastmath=True, cache=True, nogil=True, error_model="numpy")
