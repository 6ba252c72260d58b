"""Gradients of a weighted sum of TransE's scores of many candidates: what KBGAN's generator needs.

Candidates are picked from everywhere, so most entities get a gradient: it is a whole table.
"""

from __future__ import annotations

from importlib import import_module

import torch
from torch import Tensor

from nscaching.kernels.availability import HAVE_NUMBA, HAVE_TRITON


def distance_gradients(
    query: Tensor, table: Tensor, ids: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of ``sum_ij w_ij s_ij``, ``s_ij = -||q_i - x_j / ||x_j||_2||_1``.

    ``x_j`` is the row of ``table`` that ``ids[i, j]`` names. Shapes: (b, d), (n, d), (b, k) twice
    -> (b, d), (n, d).
    """
    on_gpu = query.device.type == "cuda" and HAVE_TRITON
    on_cpu = query.device.type == "cpu" and HAVE_NUMBA
    if query.dtype != torch.float32 or not (on_gpu or on_cpu):
        return _plain_gradients(query, table, ids, weights)
    out = torch.empty_like(query), torch.empty_like(table)
    tensors = [tensor.contiguous() for tensor in (query, table, ids, weights)]
    module = import_module(f"nscaching.models.gradients.distances_{'gpu' if on_gpu else 'cpu'}")
    module.gradients(*((*tensors, *out) if on_gpu else (t.numpy() for t in (*tensors, *out))))
    return out


def _plain_gradients(
    query: Tensor, table: Tensor, ids: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    unit = torch.nn.functional.normalize(table, dim=1)
    pull = weights.unsqueeze(2) * (query.unsqueeze(1) - unit[ids]).sign()
    to_unit = torch.zeros_like(table).index_add_(0, ids.reshape(-1), pull.flatten(0, 1))
    return -pull.sum(1), through_normalisation(to_unit, table)


def through_normalisation(to_unit: Tensor, vectors: Tensor) -> Tensor:
    """Return the gradient of vectors from that of their directions. Shapes: (m, d)."""
    scale = 1 / torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp_min(1e-12)
    unit = scale * vectors
    gradient: Tensor = scale * (to_unit - (to_unit * unit).sum(1, keepdim=True) * unit)
    return gradient
