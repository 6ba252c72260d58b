"""Optimisers over tables of which a step touches few rows, or all."""

from __future__ import annotations

from nscaching.optim.adagrad import Adagrad
from nscaching.optim.adam import Adam
from nscaching.optim.base import Copy, Gradients, Optimizer, RowGradients

__all__ = ["Adagrad", "Adam", "Copy", "Gradients", "Optimizer", "RowGradients"]
