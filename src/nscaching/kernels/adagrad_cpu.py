"""Adagrad on the CPU, as Numba loops; the gradients of a row are added up while it is moved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange
from torch import Tensor

from nscaching.kernels.adam_cpu import write_copy
from nscaching.kernels.constants import ADAGRAD_EPSILON
from nscaching.kernels.numba_tools import Array, arrays, inline, parallel
from nscaching.kernels.row_sums_cpu import as_gradient, chained, sum_chain
from nscaching.kernels.threads import as_many_threads_as_pay

_EPSILON = np.float32(ADAGRAD_EPSILON)


@inline
def _move(table: Array, square: Array, row: int, gradient: Array, lr: Any, decay: Any) -> None:
    zeros = 0
    while zeros < table.shape[1] and gradient[zeros] == 0:
        zeros += 1
    if zeros == table.shape[1]:  # no gradient: the row does not decay
        return
    for d in range(table.shape[1]):
        g = gradient[d] + decay * table[row, d]
        total = square[row, d] + g * g
        square[row, d] = total
        table[row, d] -= lr * g / (np.float32(math.sqrt(total)) + _EPSILON)


@parallel
def _rows(
    table: Array, square: Array, rows: Array, slot: Array, following: Array, gradient: Any,
    values: Array, scale: Array, lr: float, decay: float,
) -> None:  # fmt: skip
    rate, weight = np.float32(lr), np.float32(decay)
    for i in prange(rows.shape[0]):
        row = rows[i]
        total = np.empty(table.shape[1], dtype=np.float32)
        sum_chain(gradient, following, slot[row], total)
        _move(table, square, row, total, rate, weight)
        if values.shape[0] > 0:
            write_copy(table, row, values, scale)


@parallel
def _dense(table: Array, square: Array, gradient: Array, lr: float, decay: float) -> None:
    rate, weight = np.float32(lr), np.float32(decay)
    for row in prange(table.shape[0]):
        _move(table, square, row, gradient[row], rate, weight)


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
    gradient = as_gradient(rows, rows[:0], rows[:0], rows[:0], None)
    with (
        chained(ids, len(table)) as (slot, following, listed),
        as_many_threads_as_pay(listed.shape[0] * table.shape[1]),
    ):
        _rows(
            *arrays(table, square), listed, slot, following, gradient, *arrays(values, scale), lr,
            weight_decay,
        )  # fmt: skip


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
