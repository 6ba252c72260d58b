"""Rejected facts: permanent hard negatives of the questions that they answer wrongly.

A fact (h, r, t) that people rejected is a candidate of (h, r, ?) and of (?, r, t) in every step
that asks them, whatever the sampler draws, in a loss term of its own: the true entity against the
rejected ones.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph, PairRows
from nscaching.graph.names import REJECTED, Longs
from nscaching.models import Side
from nscaching.sampling.base import Batch
from nscaching.sampling.cache import PADDING


class RejectedFacts:
    """For the rows of both sides, the entities that were rejected as answers."""

    def __init__(self, graph: KnowledgeGraph, device: torch.device) -> None:
        triples = graph.labelled[REJECTED][:, :3].astype(np.int64)
        made = {side: _by_row(triples, side, graph.rows[side]) for side in Side}
        width = max(ids.shape[1] for _, ids in made.values())
        self._place: dict[Side, Tensor] = {}
        self._ids: dict[Side, Tensor] = {}
        for side, (place, ids) in made.items():
            wide = np.full((len(ids), width), PADDING, dtype=np.int64)
            wide[:, : ids.shape[1]] = ids
            self._place[side] = torch.from_numpy(place).to(device)
            self._ids[side] = torch.from_numpy(wide).to(device)

    @classmethod
    def of(cls, graph: KnowledgeGraph, device: torch.device) -> RejectedFacts | None:
        """Return the rejected facts of a graph; None where there are none."""
        return cls(graph, device) if len(graph.labelled.get(REJECTED, ())) else None

    def of_questions(self, batch: Batch, replaces_head: Tensor) -> Tensor:
        """Return the rejected answers of a step's questions, -1 as padding. (q,) -> (q, m)."""
        head, tail = (self._ids[side][self._place[side][batch.rows(side)]] for side in Side)
        if len(replaces_head) == len(batch):
            return torch.where(replaces_head.unsqueeze(1), head, tail)
        return torch.cat([head, tail])


def _by_row(triples: Longs, side: Side, pairs: PairRows) -> tuple[Longs, Longs]:
    """Return each row's place in a table (rows,), and the table (n, m); place 0 holds nothing."""
    found = pairs.find(triples[:, side.other.column], triples[:, 1])
    known = found >= 0
    rows, group = np.unique(found[known], return_inverse=True)
    order = np.argsort(group, kind="stable")
    count = np.bincount(group, minlength=len(rows))
    within = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count)
    ids = np.full((1 + len(rows), count.max(initial=1)), PADDING, dtype=np.int64)
    ids[1 + group[order], within] = triples[known][order, side.column]
    place = np.zeros(len(pairs), dtype=np.int64)
    place[rows] = 1 + np.arange(len(rows))
    return place, ids
