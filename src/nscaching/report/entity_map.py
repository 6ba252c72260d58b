"""A map of the entities: the two directions in which their embeddings differ most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from nscaching.graph import KnowledgeGraph
from nscaching.report.numbers import plural
from nscaching.runs.run import Run

#: Entities on a map, those with the most training facts first.
MOST_ENTITIES = 2000
#: Roles that have a look of their own; the others share one.
MOST_ROLES = 5


@dataclass(frozen=True)
class EntityMap:
    """Entities with a place each, the one with the most facts first."""

    ids: np.ndarray  #: (n,)
    places: np.ndarray  #: (n, 2)
    degree: np.ndarray  #: (n,) training facts of each
    role: np.ndarray  #: (n,) index of ``roles``
    roles: list[str]  #: what most facts of an entity say about it
    explained: float  #: share of the variance that the two directions have


def entity_map(run: Run, most: int = MOST_ENTITIES) -> EntityMap:
    """Return the map of a run's most frequent entities."""
    graph = run.graph
    degree = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.num_entities)
    ids = np.argsort(-degree, kind="stable")[:most]
    ids = ids[degree[ids] > 0]
    table = run.model.entity.detach()[torch.from_numpy(ids)].cpu().double().numpy()
    places, explained = principal_plane(table)
    role, roles = roles_of(graph, ids)
    return EntityMap(ids, places, degree[ids], role, roles, explained)


def principal_plane(table: np.ndarray) -> tuple[np.ndarray, float]:
    """Return rows in their two principal directions, and the share of the variance in those.

    A direction points to where its largest entry is positive, so that a map is the same each time.
    """
    centred = table - table.mean(0)
    with threadpool_limits(1):  # small matrices: more threads wait longer than they work
        variances, directions = np.linalg.eigh(centred.T @ centred)
    plane = directions[:, ::-1][:, :2]
    largest = np.abs(plane).argmax(0)
    plane = plane * np.sign(plane[largest, np.arange(plane.shape[1])])
    places = centred @ plane
    if places.shape[1] < 2:  # an embedding of one number
        places = np.column_stack([places, np.zeros(len(places))])
    whole = float(variances.sum())
    return places, float(variances[::-1][:2].sum()) / whole if whole > 0 else 0.0


def roles_of(graph: KnowledgeGraph, ids: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return for each entity the relation and side of most of its facts, as an index of names.

    The most frequent roles have a name of their own; the last one stands for all others.
    """
    sides = 2 * graph.num_relations
    of_fact = np.concatenate([2 * graph.train[:, 1], 2 * graph.train[:, 1] + 1]).astype(np.int64)
    entity = np.concatenate([graph.train[:, 0], graph.train[:, 2]]).astype(np.int64)
    pairs, counts = np.unique(entity * sides + of_fact, return_counts=True)
    order = np.lexsort((pairs, -counts))
    owners, first = np.unique(pairs[order] // sides, return_index=True)
    usual = np.full(graph.num_entities, -1)
    usual[owners] = pairs[order][first] % sides
    mine = usual[ids]
    found, frequency = np.unique(mine, return_counts=True)
    chosen = found[np.argsort(-frequency, kind="stable")][:MOST_ROLES]
    index = np.full(sides + 1, len(chosen))
    index[chosen] = np.arange(len(chosen))
    names = [_role_name(graph, int(role)) for role in chosen]
    left = len(found) - len(chosen)
    return index[mine], [*names, f"{plural(left, 'other role')}"] if left else names


def _role_name(graph: KnowledgeGraph, role: int) -> str:
    return f"{('head', 'tail')[role % 2]} of {graph.relations[role // 2]}"
