"""The skip-gram model with negative sampling: two tables and the gradient step (eq:skip:loss)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nscaching.models.matches import Dot, Query
from nscaching.nodes.plain import LOSS_EVERY, kernel
from nscaching.nodes.windows import Windows
from nscaching.optim import Adam, RowGradients


class SkipGram:
    """A vector u for each node as a centre and a vector v as a context; the score is u.v.

    With ``tied`` there is one table for both, as in LINE's first order.
    """

    def __init__(
        self, nodes: int, dim: int, generator: torch.Generator, *, tied: bool = False
    ) -> None:
        self.node = (torch.rand(nodes, dim, generator=generator) - 0.5) / dim
        self.context = self.node
        if not tied:
            self.context = (torch.rand(nodes, dim, generator=generator) - 0.5) / dim

    def score(self, rows: Tensor, candidates: Tensor) -> Tensor:
        """Return u.v for each row's candidates. Shapes: (b,), (b, k) -> (b, k)."""
        return Dot().forward(Query(self.node[rows]), self.context, candidates)


class SkipGramStep:
    """Takes gradient steps on a model with Adam."""

    def __init__(self, model: SkipGram, lr: float, weight_decay: float, *, lazy: bool) -> None:
        self.model = model
        tables = {"node": model.node}
        if model.context is not model.node:
            tables["context"] = model.context
        self.adam = Adam(tables, lr, weight_decay, lazy=lazy)
        self._slot = np.full(len(model.node), -1, dtype=np.int32)

    def __call__(self, windows: Windows) -> float:
        """Move the tables by the mean loss of the pairs, and return about what it is."""
        count, dim = len(windows.centres), self.model.node.shape[1]
        node, context = self.model.node.numpy(), self.model.context.numpy()
        centre_gradient = np.empty((count, dim), dtype=np.float32)
        looked_at = windows.pairs[::LOSS_EVERY]
        losses = np.empty(len(looked_at), dtype=np.float32)
        kernel("window_gradients")(
            node,
            context,
            windows.centres,
            windows.targets,
            windows.weights,
            windows.pairs,
            windows.width,
            1.0 / max(float(windows.pairs.sum()), 1.0),
            centre_gradient,
            losses,
        )
        places = windows.targets.size
        targets = np.empty(min(places, len(self._slot)), dtype=np.int64)
        starts = np.empty(len(targets) + 1, dtype=np.int64)
        order = np.empty(places, dtype=np.int64)
        used = kernel("group_targets")(windows.targets, self._slot, targets, starts, order)
        target_gradient = np.empty((used, dim), dtype=np.float32)
        kernel("target_gradients")(
            node, windows.centres, windows.weights, starts, order, target_gradient
        )
        self._move(windows.centres, centre_gradient, targets[:used], target_gradient)
        return float(losses.sum(dtype=np.float64) / max(looked_at.sum(), 1.0))

    def _move(
        self,
        centres: np.ndarray,
        centre_gradient: np.ndarray,
        targets: np.ndarray,
        target_gradient: np.ndarray,
    ) -> None:
        one = RowGradients(torch.from_numpy(centres), torch.from_numpy(centre_gradient))
        two = RowGradients(torch.from_numpy(targets), torch.from_numpy(target_gradient))
        if self.model.context is self.model.node:
            self.adam.step({"node": [one, two]})
        else:
            self.adam.step({"node": [one], "context": [two]})
