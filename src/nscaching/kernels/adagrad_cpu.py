"""Adagrad on the CPU, as Numba loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from nscaching.kernels.adam_cpu import gather_rows, write_copy
from nscaching.kernels.numba_tools import Array, arrays, inline, parallel
from nscaching.kernels.threads import as_many_threads_as_pay

_EPSILON = np.float32(1e-10)


@inline
def _move(
    table: Array, square: Array, row: int, gradient: Array, own: int, lr: Any, decay: Any
) -> None:
    zeros = 0
    while zeros < table.shape[1] and gradient[own, zeros] == 0:
        zeros += 1
    if zeros == table.shape[1]:  # no gradient: the row does not decay
        return
    for d in range(table.shape[1]):
        g = gradient[own, d] + decay * table[row, d]
        total = square[row, d] + g * g
        square[row, d] = total
        table[row, d] -= lr * g / (np.float32(math.sqrt(total)) + _EPSILON)


@parallel
def _rows(
    table: Array, square: Array, rows: Array, slot: Array, gradient: Array,
    values: Array, scale: Array, lr: float, decay: float,
) -> None:  # fmt: skip
    rate, weight = np.float32(lr), np.float32(decay)
    for i in prange(rows.shape[0]):
        row = rows[i]
        _move(table, square, row, gradient, slot[row], rate, weight)
        if values.shape[0] > 0:
            write_copy(table, row, values, scale)


@parallel
def _dense(table: Array, square: Array, gradient: Array, lr: float, decay: float) -> None:
    rate, weight = np.float32(lr), np.float32(decay)
    for row in prange(table.shape[0]):
        _move(table, square, row, gradient, row, rate, weight)


def adagrad_rows(
    table: Tensor,
    square: Tensor,
    ids: Tensor,
    rows: Tensor,
    values: Tensor,
    scale: Tensor,
    lr: float,
    weight_decay: float,
) -> None:
    """Move rows of a table in place; ids may repeat, and an int8 copy follows if there is one."""
    slot = torch.full((len(table),), -1, dtype=torch.int32).numpy()
    gradient = rows.contiguous().numpy()
    listed = np.empty(len(ids), dtype=np.int64)
    listed = listed[: gather_rows(ids.numpy(), gradient, gradient[:0], slot, listed)]
    tensors = arrays(table, square)
    with as_many_threads_as_pay(listed.shape[0] * table.shape[1]):
        _rows(*tensors, listed, slot, gradient, *arrays(values, scale), lr, weight_decay)


def adagrad_dense(
    table: Tensor,
    square: Tensor,
    gradient: Tensor,
    rate: float,
    lr: float,
    weight_decay: float,
    clear: bool,
) -> None:
    """Move all rows of a table in place; the rate is a factor of the learning rate."""
    _dense(*arrays(table, square, gradient), lr * rate, weight_decay)
    if clear:
        gradient.zero_()
