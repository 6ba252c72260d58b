"""Places and types of all entities for the explorer's map."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from nscaching.graph import KnowledgeGraph

#: Entities that t-SNE places itself, those with the most facts; the others go to their neighbours.
LANDMARKS = 1000
#: Landmarks that place another entity, entities compared at once, and rounds of t-SNE.
_NEAREST, _BLOCK, _ROUNDS = 2, 4096, 400
_COMPONENTS, _PERPLEXITY = 32, 25
#: Types with a colour of their own; the others share one.
MOST_TYPES = 5
#: Percent at each end that do not set the scale of the map.
_OUTLIERS = 0.2
FULL = 65535

Places = npt.NDArray[np.uint16]


def entity_degrees(graph: KnowledgeGraph) -> npt.NDArray[np.int64]:
    """Return how many training facts each entity has. Shape: (n,)."""
    return np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.num_entities)


def entity_places(table: np.ndarray, degree: np.ndarray, seed: int = 0) -> Places:
    """Return a place per entity, 0 to 65535 in each direction. Shapes: (n, w), (n,) -> (n, 2).

    t-SNE of the cosine similarity for the entities with the most facts; the others lie between the
    landmarks that they resemble most, so a map of 100,000 entities takes seconds, not hours.
    """
    rows = table.astype(np.float32)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    chosen = np.sort(np.argsort(-degree, kind="stable")[:LANDMARKS])
    with threadpool_limits(1):
        landmarks = _embedded(rows[chosen], seed)
        places = _between(rows, rows[chosen], landmarks, seed)
    places[chosen] = landmarks
    low, high = np.percentile(places, [_OUTLIERS, 100 - _OUTLIERS], axis=0)
    middle, half = (low + high) / 2, max(float((high - low).max()) / 2, 1e-12) * 1.04
    inside = np.clip((places - middle) / half, -1, 1)
    scaled: Places = np.round((inside + 1) / 2 * FULL).astype(np.uint16)
    return scaled


def _embedded(rows: np.ndarray, seed: int) -> np.ndarray:
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
    method = TSNE(perplexity=_PERPLEXITY, init=start, max_iter=_ROUNDS, random_state=seed)
    return np.asarray(method.fit_transform(reduced.astype(np.float32)), dtype=np.float64)


def _between(
    rows: np.ndarray, landmarks: np.ndarray, places: np.ndarray, seed: int
) -> npt.NDArray[np.float64]:
    """Place each row among its most similar landmarks, a little apart from the others there."""
    nearest = min(_NEAREST, len(landmarks))
    spread = np.random.default_rng(seed).normal(size=(len(rows), 2))
    spread *= 0.012 * (np.ptp(places, axis=0).max() or 1.0)
    made = np.empty((len(rows), 2))
    for start in range(0, len(rows), _BLOCK):
        similarity = rows[start : start + _BLOCK] @ landmarks.T
        best = np.argpartition(-similarity, nearest - 1, axis=1)[:, :nearest]
        weight = np.exp(12 * np.take_along_axis(similarity, best, axis=1))
        weight /= weight.sum(1, keepdims=True)
        made[start : start + _BLOCK] = (weight[:, :, None] * places[best]).sum(1)
    return made + spread


def entity_types(graph: KnowledgeGraph) -> tuple[npt.NDArray[np.uint8], list[str]]:
    """Return a type per entity and the names of the types. Shape: (n,).

    A type is the relation and side of most training facts of the entity; the most frequent ones
    have a name of their own, and the last one stands for all others.
    """
    sides = 2 * graph.num_relations
    relation = graph.train[:, 1].astype(np.int64)
    role = np.concatenate([2 * relation, 2 * relation + 1])
    entity = np.concatenate([graph.train[:, 0], graph.train[:, 2]]).astype(np.int64)
    pairs, counts = np.unique(entity * sides + role, return_counts=True)
    order = np.lexsort((pairs, -counts))
    owners, first = np.unique(pairs[order] // sides, return_index=True)
    usual = pairs[order][first] % sides
    found, frequency = np.unique(usual, return_counts=True)
    chosen = found[np.argsort(-frequency, kind="stable")][:MOST_TYPES]
    index = np.full(sides, len(chosen))
    index[chosen] = np.arange(len(chosen))
    types = np.full(graph.num_entities, len(chosen), dtype=np.uint8)
    types[owners] = index[usual]
    ends = ("head", "tail")
    names = [f"{ends[each % 2]} of {graph.relations[each // 2]}" for each in chosen.tolist()]
    return types, [*names, "others"]
