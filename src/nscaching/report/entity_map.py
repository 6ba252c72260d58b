"""The map of the entities: places by t-SNE, types by where entities stand, and its drawing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

from nscaching.graph import KnowledgeGraph
from nscaching.report.charts import Scatter, html_legend
from nscaching.report.markup import Html, tag
from nscaching.runs.run import Run

#: Entities on the map of a page, those with the most training facts first.
MOST_ENTITIES = 2000
WIDTH, HEIGHT = 960, 600
#: Entities whose names stand on the map, where they do not cover each other; fewer on a phone.
_NAMED, _NAMED_ON_PHONE = 24, 6
_NAME_LENGTH = 26
#: Entities that t-SNE places itself, those with the most facts; the others go to their neighbours.
LANDMARKS = 1000
#: Landmarks that place another entity, entities compared at once, and rounds of t-SNE.
_NEAREST, _BLOCK, _ROUNDS = 2, 4096, 400
_COMPONENTS, _PERPLEXITY = 32, 25
#: Types of entities, each with a colour of its own.
MOST_TYPES = 7
#: Distinct profiles that are clustered; the others are assigned.
_MOST_PROFILES = 1500
#: Percent at each end that do not set the scale of the map.
_OUTLIERS = 0.2
FULL = 65535

Places = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class EntityMap:
    """Entities with a place and a type each, the one with the most training facts first."""

    ids: np.ndarray  #: (n,)
    places: Places  #: (n, 2)
    degree: np.ndarray  #: (n,) training facts of each
    type: np.ndarray  #: (n,) index of ``types``
    types: list[str]


def entity_map(
    run: Run, most: int = MOST_ENTITIES, known_places: Places | None = None
) -> EntityMap:
    """Return the map of a run's most frequent entities; ``known_places`` are those of all."""
    graph = run.graph
    degree = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.num_entities)
    ids = np.argsort(-degree, kind="stable")[:most]
    ids = ids[degree[ids] > 0]
    if known_places is None:
        table = run.model.entity[torch.from_numpy(ids)].detach().float().cpu().numpy()
        places = entity_places(table, degree[ids])
    else:
        places = known_places[ids]
    return EntityMap(ids, places, degree[ids], *entity_types(graph, ids))


def entity_degrees(graph: KnowledgeGraph) -> npt.NDArray[np.int64]:
    """Return how many facts of all splits each entity has. Shape: (n,)."""
    ends = [graph.split(name)[:, [0, 2]].ravel() for name in ("train", "valid", "test")]
    return np.bincount(np.concatenate(ends), minlength=graph.num_entities)


def entity_places(table: np.ndarray, degree: np.ndarray) -> Places:
    """Return a place per entity, 0 to 65535 in each direction. Shapes: (n, w), (n,) -> (n, 2).

    t-SNE of the cosine similarity for the entities with the most facts; the others lie between the
    landmarks that they resemble most, so a map of 100,000 entities takes seconds, not hours.
    """
    rows = table.astype(np.float32)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    chosen = np.sort(np.argsort(-degree, kind="stable")[:LANDMARKS])
    with threadpool_limits(1):
        landmarks = _embedded(rows[chosen])
        places = _between(rows, rows[chosen], landmarks)
    places[chosen] = landmarks
    low, high = np.percentile(places, [_OUTLIERS, 100 - _OUTLIERS], axis=0)
    middle, half = (low + high) / 2, max(float((high - low).max()) / 2, 1e-12) * 1.04
    inside = np.clip((places - middle) / half, -1, 1)
    scaled: Places = np.round((inside + 1) / 2 * FULL).astype(np.uint16)
    return scaled


def _embedded(rows: np.ndarray) -> np.ndarray:
    """Place rows of length one by t-SNE, or by their principal plane where they are very few."""
    centred = rows - rows.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    reduced = centred @ directions[:_COMPONENTS].T
    plane = np.zeros((len(rows), 2))
    plane[:, : min(2, reduced.shape[1])] = reduced[:, :2]
    if len(rows) < 3 * _PERPLEXITY:
        return plane
    from sklearn.manifold import TSNE

    start = plane / max(float(plane[:, 0].std()), 1e-12) * 1e-4
    method = TSNE(perplexity=_PERPLEXITY, init=start, max_iter=_ROUNDS, random_state=0)
    return np.asarray(method.fit_transform(reduced.astype(np.float32)), dtype=np.float64)


def _between(
    rows: np.ndarray, landmarks: np.ndarray, places: np.ndarray
) -> npt.NDArray[np.float64]:
    """Place each row among its most similar landmarks, a little apart from the others there."""
    nearest = min(_NEAREST, len(landmarks))
    spread = np.random.default_rng(0).normal(size=(len(rows), 2))
    spread *= 0.012 * (np.ptp(places, axis=0).max() or 1.0)
    made = np.empty((len(rows), 2))
    for start in range(0, len(rows), _BLOCK):
        similarity = rows[start : start + _BLOCK] @ landmarks.T
        best = np.argpartition(-similarity, nearest - 1, axis=1)[:, :nearest]
        weight = np.exp(12 * np.take_along_axis(similarity, best, axis=1))
        weight /= weight.sum(1, keepdims=True)
        made[start : start + _BLOCK] = (weight[:, :, None] * places[best]).sum(1)
    return made + spread


def entity_types(graph: KnowledgeGraph, ids: np.ndarray) -> tuple[npt.NDArray[np.uint8], list[str]]:
    """Return the types of some entities and the names of the types. Shapes: (n,) -> (n,).

    Entities that stand at the same places, as the head or tail of the same relations, have one
    type: clusters of these places, named by the place that tells a cluster from the others. The
    last type is that of entities without training facts.
    """
    # Where each entity stands: as the head of each relation, then as the tail; (n, 2 m).
    profile = np.zeros((len(ids), 2 * graph.num_relations), dtype=bool)
    row = np.full(graph.num_entities, -1)
    row[ids] = np.arange(len(ids))
    for column, first in ((0, 0), (2, graph.num_relations)):
        of_fact = row[graph.train[:, column]]
        there = of_fact >= 0
        profile[of_fact[there], first + graph.train[there, 1]] = True
    known = profile.any(1)
    types = np.full(len(ids), 0, dtype=np.uint8)
    names: list[str] = []
    profile = profile[known]
    if known.any():
        label = _clusters(profile)
        by_size = np.argsort(-np.bincount(label), kind="stable")
        place = np.empty(len(by_size), dtype=np.uint8)
        place[by_size] = np.arange(len(by_size))
        types[known] = place[label]
        names = _type_names(graph, profile, types[known], len(by_size))
    if not known.all():
        types[~known] = len(names)
        names.append("no training facts")
    return types, names


def _clusters(profile: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return a cluster per row: average linkage of the most frequent profiles, by cosine.

    The other profiles go to the cluster whose mean is nearest.
    """
    packed = np.packbits(profile, axis=1)  # an eighth to sort, in the same order
    _, first, of_row = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    of_row = of_row.reshape(-1)
    if len(first) <= MOST_TYPES:
        return np.asarray(of_row, dtype=np.int64)
    from scipy.cluster.hierarchy import fcluster, linkage

    frequent = np.argsort(-np.bincount(of_row), kind="stable")[:_MOST_PROFILES]
    rows = profile[first[frequent]].astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    joined = linkage(rows, method="average", metric="cosine")
    found = fcluster(np.maximum(joined, 0), MOST_TYPES, criterion="maxclust") - 1
    label = np.empty(len(first), dtype=np.int64)
    with threadpool_limits(1):
        means = np.stack([rows[found == each].mean(0) for each in range(found.max() + 1)])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        for start in range(0, len(first), _BLOCK):  # the length of a row decides nothing
            part = profile[first[start : start + _BLOCK]].astype(np.float32)
            label[start : start + _BLOCK] = np.argmax(part @ means.T, axis=1)
    label[frequent] = found
    return np.asarray(label[of_row], dtype=np.int64)


def _type_names(
    graph: KnowledgeGraph, profile: npt.NDArray[np.bool_], types: np.ndarray, size: int
) -> list[str]:
    """Name each type by the place that most of its entities and few others stand at."""
    names: list[str] = []
    overall = profile.mean(0)
    for each in range(size):
        inside = profile[types == each].mean(0)
        for role in np.argsort(-(inside * (inside - overall)), kind="stable").tolist():
            side, relation = divmod(role, graph.num_relations)
            name = f"{('head', 'tail')[side]} of {graph.relations[relation]}"
            if name not in names:
                break
        names.append(name)
    return names


# The figure --------------------------------------------------------------------------------------


def draw_map(found: EntityMap, entities: Sequence[str]) -> Html:
    """Return the figure."""
    names = [entities[number] for number in found.ids]
    label = f"Map of {len(names)} entities in two dimensions"
    dots = Scatter(label, found.places, found.type, found.types, (WIDTH, HEIGHT))
    places = dots.places()
    parts = [*dots.parts(), *_labels(places, names)]
    parts += [tag("g", class_="found"), tag("g", class_="pointer")]
    svg = tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)
    data = {
        "names": names,
        "at": places.tolist(),
        "types": found.types,
        "type": found.type.tolist(),
        "degree": found.degree.tolist(),
    }
    packed = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    legend = html_legend(dots, width=12)
    box = tag("input", type="search", placeholder="part of a name", autocomplete="off")
    finder = tag("label", "Find", box, tag("output"), class_="find", hidden="hidden")  # by script
    return tag("figure", finder, svg, legend, class_="map", data_points=packed)


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
