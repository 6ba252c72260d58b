"""Rows for the entities and relations that are new in a graph, made of those that are known."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import Integers

if TYPE_CHECKING:
    from nscaching.runs.run import Run


def grown_tables(run: Run, graph: KnowledgeGraph) -> tuple[Tensor, Tensor]:
    """Return the tables of a run with rows for what is new in a graph.

    A relation table with a second half, for the other direction, has both halves grown.
    """
    old = run.graph
    entity = run.model.entity.detach().float().cpu()
    relation = run.model.relation.detach().cpu()
    halves = relation.view(-1, old.num_relations, relation.shape[1])
    weights = _relation_weights(old, graph)
    more = [torch.einsum("ij,hjw->hiw", weights, halves)] if len(weights) else []
    relation = torch.cat([halves, *more], dim=1).reshape(-1, relation.shape[1])
    entity = torch.cat([entity, _new_rows(graph, old.num_entities, entity)])
    return entity.contiguous(), relation.contiguous()


def _new_rows(graph: KnowledgeGraph, known: int, table: Tensor) -> Tensor:
    """Return for each new entity the mean row of those that stand where it stands. Shape: (e, w).

    Every fact counts the same. Where no known entity answers its question, it has the mean of those
    that stand in this place of its relation; without any, an entity has the mean of all.
    """
    train, mean_row = graph.train, table.mean(dim=0)
    total = torch.zeros(graph.num_entities - known, table.shape[1])
    count = torch.zeros(len(total), 1)

    def mean(alike: Integers) -> Tensor | None:
        alike = alike[alike < known].astype(np.int64)
        return table[torch.from_numpy(alike)].mean(dim=0) if len(alike) else None

    @functools.cache
    def in_position(place: int, relation: int) -> Tensor | None:
        return mean(np.unique(train[train[:, 1] == relation, place]))

    for pairs, place, other in ((graph.rows.head, 0, 2), (graph.rows.tail, 2, 0)):
        facts = train[train[:, place] >= known]
        asked, question = np.unique(facts[:, [other, 1]], axis=0, return_inverse=True)
        means, found = torch.zeros(len(asked), table.shape[1]), torch.zeros(len(asked), 1)
        for number, (anchor, relation) in enumerate(asked):
            row = mean(pairs.completions(anchor[None], relation[None])[1])
            row = in_position(place, int(relation)) if row is None else row
            if row is not None:
                means[number], found[number] = row, 1
        entity = torch.from_numpy(facts[:, place] - known).long()
        of_fact = torch.from_numpy(question).reshape(-1)
        total.index_add_(0, entity, means[of_fact])
        count.index_add_(0, entity, found[of_fact])
    return torch.where(count > 0, total / count.clamp_min(1), mean_row)


def _relation_weights(old: KnowledgeGraph, graph: KnowledgeGraph) -> Tensor:
    """Return how much of each known relation a new one takes: as they share heads and tails."""
    known = old.num_relations
    if graph.num_relations == known:
        return torch.zeros(0, known)
    from scipy import sparse  # few updates have a new relation

    shared = np.ones((graph.num_relations - known, known), dtype=np.float32)
    for column in (0, 2):
        pairs = np.unique(graph.train[:, [1, column]], axis=0)
        ones = np.ones(len(pairs), dtype=np.float32)
        sizes = graph.num_relations, graph.num_entities
        there = sparse.csr_matrix((ones, (pairs[:, 0], pairs[:, 1])), shape=sizes)
        shared *= (there[known:] @ there[:known].T).toarray()
    weights = shared + 1e-3
    return torch.from_numpy(weights / weights.sum(axis=1, keepdims=True)).float()
