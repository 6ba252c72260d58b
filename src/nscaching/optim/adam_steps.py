"""Adam's steps for some rows, with plain torch: the definition of what the kernels do to a row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Moments(NamedTuple):
    """Some rows of a table and of its moments, which are changed in place; shape: (n, width)."""

    table: Tensor
    mean: Tensor
    square: Tensor

    def take_step(self, rows: Tensor, gradient: Tensor, step: float, lr: float) -> None:
        """Take the step of that number for some of the rows, each once."""
        mean = self.mean[rows].mul_(BETA1).add_(gradient, alpha=1 - BETA1)
        square = self.square[rows].mul_(BETA2).add_(gradient**2, alpha=1 - BETA2)
        self.mean[rows], self.square[rows] = mean, square
        root = square.sqrt() / (1 - BETA2**step) ** 0.5 + EPSILON
        self.table[rows] -= lr / (1 - BETA1**step) * mean / root

    def catch_up(self, since: Tensor, moved: Tensor, count: int, lr: float, decay: float) -> None:
        """Take the steps up to the present one, in which the rows have had no gradient.

        ``since`` is the step as of which the moments are stored, ``moved`` the one that the rows
        have moved to. Shapes: (n,).
        """
        waited = (moved - since).unsqueeze(1)
        self.mean.mul_(BETA1**waited)
        self.square.mul_(BETA2**waited)
        for step in range(int(moved.min()) + 1, count + 1):
            rows = torch.nonzero(moved < step).squeeze(1)
            self.take_step(rows, decay * self.table[rows], step, lr)
