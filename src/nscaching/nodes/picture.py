"""A picture of an embedding: every node a point, every class a colour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nscaching.errors import UserError
from nscaching.report.drawing import figure, save

if TYPE_CHECKING:
    from nscaching.nodes.embedding import NodeEmbedding

_SUFFIXES = (".png", ".svg", ".pdf")
#: More nodes than this are not all drawn: t-SNE would take hours, and a picture shows no more.
MOST_POINTS = 10_000


def draw_picture(embedding: NodeEmbedding, path: Path, *, seed: int = 0) -> Path:
    """Lay the nodes out with t-SNE (cosine) and draw them; isolated nodes are left out."""
    if path.suffix.lower() not in _SUFFIXES:
        raise UserError(f"Cannot draw {path}: end it in {', '.join(_SUFFIXES)}.")
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent}; make it first.")
    graph = embedding.graph
    shown = np.flatnonzero(~graph.isolated)
    if len(shown) > MOST_POINTS:
        shown = np.sort(np.random.default_rng(seed).choice(shown, MOST_POINTS, replace=False))
    if len(shown) < 4:
        raise UserError("A picture needs at least 4 nodes with an edge.")
    places = _layout(embedding.vectors[shown], seed)
    with figure(7, 6) as drawn:
        from matplotlib import colormaps

        axes, colours = drawn.subplots(), colormaps["tab20"]
        labels = graph.labels
        classes = np.full(len(shown), -1) if labels is None else labels.of_node[shown]
        for number in np.unique(classes):
            chosen = places[classes == number]
            name = labels.classes[number] if labels is not None and number >= 0 else "no class"
            colour = "lightgrey" if number < 0 else colours(int(number) % 20)
            axes.scatter(
                chosen[:, 0],
                chosen[:, 1],
                s=5,
                color=colour,
                label=name.replace("_", " "),
                linewidths=0,
            )
        config = embedding.config
        axes.set_title(f"{graph.name}: {config.model}, {config.sampler}")
        axes.set_axis_off()
        if labels is not None and len(labels.classes) <= 20:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), markerscale=3)
        save(drawn, path)
    return path


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
