"""A map of the entities: the two directions in which their embeddings differ most, as a figure.

Dots by role, names of the entities with the most facts, the other names on hover.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from nscaching.graph import KnowledgeGraph
from nscaching.report.charts import Scatter, html_legend
from nscaching.report.markup import Html, tag
from nscaching.report.numbers import plural
from nscaching.runs.run import Run

#: Entities on a map, those with the most training facts first.
MOST_ENTITIES = 2000
#: Roles that have a style of their own; the others share one.
MOST_ROLES = 5
WIDTH, HEIGHT = 960, 600
#: Entities whose names stand on the map, where they do not cover each other; fewer on a phone.
_NAMED, _NAMED_ON_PHONE = 24, 6
_NAME_LENGTH = 26


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


# The figure --------------------------------------------------------------------------------------


def draw_map(found: EntityMap, entities: Sequence[str]) -> Html:
    """Return the figure."""
    names = [entities[number] for number in found.ids]
    label = f"Map of {len(names)} entities in two dimensions"
    dots = Scatter(label, found.places, found.role, found.roles, (WIDTH, HEIGHT))
    places = dots.places()
    parts = [*dots.parts(), *_labels(places, names)]
    parts += [tag("g", class_="found"), tag("g", class_="pointer")]
    svg = tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)
    data = {
        "names": names,
        "at": places.tolist(),
        "roles": found.roles,
        "role": found.role.tolist(),
        "degree": found.degree.tolist(),
    }
    packed = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    legend = html_legend(dots, width=12)
    return tag("figure", _finder(), svg, legend, class_="map", data_points=packed)


def _labels(places: np.ndarray, names: Sequence[str]) -> list[Html]:
    """Name the entities with the most facts, one after another, where there is room."""
    taken: list[tuple[float, float, float, float]] = []
    parts: list[Html] = []
    for (x, y), name in zip(places.tolist(), names, strict=True):
        if len(parts) == _NAMED:
            break
        short = name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…"
        on_phone = len(parts) < _NAMED_ON_PHONE  # twice as large there
        half = len(short) * (9.4 if on_phone else 3.7) + 4
        height = 34 if on_phone else 16
        middle = min(max(x, half + 4), WIDTH - half - 4)
        box = (middle - half, y - 6 - height, middle + half, y - 4)
        if box[1] < 0 or any(_overlap(box, other) for other in taken):
            continue
        taken.append(box)
        style = "label" if on_phone else "label second"
        parts.append(tag("text", short, x=middle, y=y - 7, text_anchor="middle", class_=style))
    return parts


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _finder() -> Html:
    """Return the box that finds an entity by name; the script shows it."""
    box = tag("input", type="search", placeholder="part of a name", autocomplete="off")
    return tag("label", "Find", box, tag("output"), class_="find", hidden="hidden")
