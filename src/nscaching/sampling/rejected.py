"""Rejected facts: permanent hard negatives of the questions that they answer wrongly.

A fact (h, r, t) that people rejected is a candidate of (h, r, ?) and of (?, r, t) in every step
that asks them, whatever the sampler draws, in a loss term of its own: the true entity against the
rejected ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph, PairRows
from nscaching.graph.names import REJECTED
from nscaching.graph.pairs import pair_keys
from nscaching.models import Side
from nscaching.sampling.base import PADDING, Batch

Ids = npt.NDArray[np.int64]


class RejectedFacts:
    """For the rows of both sides, the entities that were rejected as answers."""

    def __init__(self, graph: KnowledgeGraph, device: torch.device) -> None:
        triples = graph.labelled[REJECTED][:, :3].astype(np.int64)
        pairs = {Side.HEAD: graph.rows.head, Side.TAIL: graph.rows.tail}
        made = {
            side: _by_row(triples, side, pair, graph.num_entities) for side, pair in pairs.items()
        }
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


def _by_row(
    triples: Ids, side: Side, pairs: PairRows, num_entities: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return each row's place in a table (rows,), and the table (n, m); place 0 holds nothing."""
    anchor, answer = (2, 0) if side is Side.HEAD else (0, 2)
    keys = pair_keys(pairs.relation, pairs.anchor, num_entities)  # ascending
    asked = pair_keys(triples[:, 1], triples[:, anchor], num_entities)
    found = np.searchsorted(keys, asked).clip(max=max(0, len(keys) - 1))
    known = keys[found] == asked if len(keys) else np.zeros(len(asked), dtype=bool)
    rows, group = np.unique(found[known], return_inverse=True)
    order = np.argsort(group, kind="stable")
    count = np.bincount(group, minlength=len(rows))
    within = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count)
    ids = np.full((1 + len(rows), count.max(initial=1)), PADDING, dtype=np.int64)
    ids[1 + group[order], within] = triples[known][order, answer]
    place = np.zeros(len(keys), dtype=np.int64)
    place[rows] = 1 + np.arange(len(rows))
    return place, ids
