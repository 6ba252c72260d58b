"""A picture of an embedding: every node a point, every class a colour and a shape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nscaching.errors import UserError
from nscaching.report.charts import Scatter
from nscaching.report.pictures import write_svg

if TYPE_CHECKING:
    from nscaching.nodes.embedding import NodeEmbedding

#: More nodes than this are not all drawn: t-SNE would take hours, and a picture shows no more.
MOST_POINTS = 10_000
#: Classes with a style of their own, the most frequent ones.
MOST_CLASSES = 20


def draw_picture(embedding: NodeEmbedding, path: Path, *, seed: int = 0) -> Path:
    """Lay the nodes out with t-SNE (cosine) and draw them as SVG, without isolated nodes."""
    if path.suffix.lower() != ".svg":
        raise UserError(f"Cannot draw {path}: pictures are SVG, so end it in .svg.")
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent}; make it first.")
    graph = embedding.graph
    shown = np.flatnonzero(~graph.isolated)
    if len(shown) > MOST_POINTS:
        shown = np.sort(np.random.default_rng(seed).choice(shown, MOST_POINTS, replace=False))
    if len(shown) < 4:
        raise UserError("A picture needs at least 4 nodes with an edge.")
    group, groups = _classes(embedding, shown)
    title = f"{graph.name}: {embedding.config.model}, {embedding.config.sampler}"
    places = _layout(embedding.vectors[shown], seed)
    return write_svg(path, [Scatter(title, places, group, groups, (840, 720))])


def _classes(embedding: NodeEmbedding, shown: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return the group of each node and the names of the groups, the largest class first."""
    labels = embedding.graph.labels
    if labels is None:
        return np.zeros(len(shown), dtype=np.int64), ["node"]
    classes = labels.of_node[shown]
    found, counts = np.unique(classes[classes >= 0], return_counts=True)
    chosen = found[np.argsort(-counts, kind="stable")][:MOST_CLASSES]
    group = np.full(len(labels.classes) + 1, len(chosen))
    group[chosen] = np.arange(len(chosen))
    names = [labels.classes[number].replace("_", " ") for number in chosen]
    rest = "no class" if len(chosen) == len(found) else "other classes"
    of_node = group[classes]
    return of_node, [*names, rest] if (of_node == len(chosen)).any() else names


def _layout(vectors: np.ndarray, seed: int) -> np.ndarray:
    """Return a place for each vector. Shape: (n, 2)."""
    from sklearn.manifold import TSNE

    tsne = TSNE(
        metric="cosine",
        init="pca",
        perplexity=min(30.0, (len(vectors) - 1) / 3),
        random_state=seed,
    )
    return np.asarray(tsne.fit_transform(vectors))
