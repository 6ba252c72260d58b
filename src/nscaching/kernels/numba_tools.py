"""How CPU kernels are compiled: on first use, and kept on disk."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from torch import Tensor

Array = np.ndarray[Any, Any]
#: A kernel: its ``prange`` runs on all threads.
parallel: Any = njit(parallel=True, fastmath=True, cache=True, nogil=True, error_model="numpy")
#: A part of kernels.
inline: Any = njit(fastmath=True, cache=True, nogil=True, error_model="numpy")
#: The same with strict arithmetic, for kernels that handle infinities or must repeat bit for bit.
exact_parallel: Any = njit(parallel=True, cache=True, nogil=True, error_model="numpy")
exact_inline: Any = njit(cache=True, nogil=True, error_model="numpy")
#: A part of a loop over short rows: a call for each would take as long as the row.
inside: Any = njit(fastmath=True, cache=True, nogil=True, error_model="numpy", forceinline=True)


@exact_inline  # fast arithmetic may assume that there are no infinities
def unless_padding(score: Any, entity: int) -> Any:
    """Return a score, or minus infinity where the id is padding."""
    return score if entity >= 0 else np.float32(-np.inf)


@inline
def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)), for any x."""
    return np.float32(max(x, np.float32(0)) + math.log1p(math.exp(-abs(x))))


@inline
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return np.float32(1) / (np.float32(1) + np.float32(math.exp(-x)))


def arrays(*tensors: Tensor) -> list[Array]:
    """Return tensors as NumPy arrays that share their memory."""
    return [
        (tensor.detach() if tensor.requires_grad else tensor).contiguous().numpy()
        for tensor in tensors
    ]
