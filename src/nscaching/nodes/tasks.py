"""What an embedding is good for: classifying nodes, predicting links, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.artefacts.files import refuse_no_folder
from nscaching.errors import UserError
from nscaching.graph.names import Bools, Floats, Longs
from nscaching.nodes.graph import Labels, NodeGraph
from nscaching.report.charts import Scatter
from nscaching.report.pictures import write_svg

SHARES = (0.3, 0.5, 0.7)
_MAX_ITERATIONS = 2000
#: More nodes than this are not all drawn: t-SNE would take hours, and a picture shows no more.
MOST_POINTS = 10_000
#: Classes with a style of their own, the most frequent ones.
MOST_CLASSES = 20


def classify_nodes(
    vectors: np.ndarray, labels: Labels, *, shares: Sequence[float] = SHARES, **how: Any
) -> dict[str, dict[str, dict[str, float]]]:
    """Fit a logistic regression on a share of the labelled nodes and test it on the others.

    ``how`` are ``draws`` and ``seed``. Returns
    ``share -> "micro_f1" and "macro_f1" -> "mean" and "std"`` over the draws.
    """
    return means_and_deviations(
        classification_scores(vectors, labels, shares=shares, **how), shares
    )


def means_and_deviations(
    scores: Floats, shares: Sequence[float] = SHARES
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return mean and standard deviation over draws. Shape of ``scores``: (shares, draws, 2)."""
    return {
        f"{share:.0%}": {
            name: {"mean": float(values.mean()), "std": float(values.std())}
            for name, values in zip(("micro_f1", "macro_f1"), scores[at].T, strict=True)
        }
        for at, share in enumerate(shares)
    }


def classification_scores(
    vectors: np.ndarray,
    labels: Labels,
    *,
    shares: Sequence[float] = SHARES,
    draws: int = 5,
    seed: int = 0,
    validate: bool = False,
) -> Floats:
    """Return micro and macro F1 of each draw. Shape: (shares, draws, 2).

    With ``validate`` the test nodes stay unseen: four fifths of the share are learnt from and the
    last fifth of it is asked, which is how settings are chosen.
    """
    known = labels.known
    found = len(np.unique(labels.of_node[known]))
    if found < 2:
        raise UserError(f"Classification needs nodes of at least two classes; there is {found}.")
    scores = np.empty((len(shares), draws, 2))
    for at, share in enumerate(shares):
        for draw in range(draws):
            order = np.random.default_rng([seed, draw, round(1000 * share)]).permutation(known)
            cut = round(share * len(order))
            learn, ask = order[:cut], order[cut:]
            if validate:
                learn, ask = order[: round(0.8 * cut)], order[round(0.8 * cut) : cut]
            scores[at, draw] = _f1(vectors, labels.of_node, learn, ask)
    return scores


def _f1(
    vectors: np.ndarray, classes: np.ndarray, learn: np.ndarray, ask: np.ndarray
) -> tuple[float, float]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score
    from threadpoolctl import threadpool_limits

    if len(ask) == 0 or len(np.unique(classes[learn])) < 2:
        raise UserError("There are too few labelled nodes to learn from some and ask the others.")
    with threadpool_limits(1):  # the matrices are small: more threads wait longer than they work
        model = LogisticRegression(max_iter=_MAX_ITERATIONS).fit(vectors[learn], classes[learn])
    answers = model.predict(vectors[ask])
    micro, macro = (
        float(f1_score(classes[ask], answers, average=average)) for average in ("micro", "macro")
    )
    return micro, macro


def hold_out_edges(graph: NodeGraph, share: float, seed: int) -> tuple[Longs, Bools]:
    """Choose edges to hold out; every node keeps at least one. Returns edges and which stay.

    Of a directed graph an edge and its reverse go together: one would give the other away.
    """
    edges = graph.edges()
    order = np.random.default_rng([seed, 1]).permutation(len(edges))
    shuffled = edges[order]
    # The first edge of each node in the random order stays.
    _, first_of_ends = np.unique(shuffled.reshape(-1), return_index=True)
    stays = np.zeros(len(edges), dtype=bool)
    stays[first_of_ends // 2] = True
    pair = shuffled.min(axis=1) * len(graph) + shuffled.max(axis=1)
    stays = np.isin(pair, pair[stays])
    free = np.flatnonzero(~stays)
    _, first, of_edge = np.unique(pair[free], return_index=True, return_inverse=True)
    free = free[np.argsort(first[of_edge.reshape(-1)], kind="stable")]  # the two of a pair together
    count = round(share * len(edges))
    if 0 < count < len(free) and pair[free[count - 1]] == pair[free[count]]:
        count -= 1
    stays[free[count:]] = True
    keep = np.empty(len(edges), dtype=bool)
    keep[order] = stays
    return edges, keep


def link_prediction(
    vectors: np.ndarray, graph: NodeGraph, held_out: Longs, *, seed: int = 0
) -> dict[str, Any]:
    """Tell held-out edges from as many pairs that are no edge, by cosine similarity."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    if len(held_out) == 0:
        raise UserError("No edges were held out; train with --held-out 0.1, for example.")
    pairs = np.concatenate([held_out, _non_edges(graph, held_out, seed)])
    truth = np.arange(len(pairs)) < len(held_out)
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    unit = vectors / lengths
    scores = np.einsum("ij,ij->i", unit[pairs[:, 0]], unit[pairs[:, 1]])
    return {
        "auc": float(roc_auc_score(truth, scores)),
        "average_precision": float(average_precision_score(truth, scores)),
        "edges": len(held_out),
    }


def _non_edges(graph: NodeGraph, held_out: Longs, seed: int) -> npt.NDArray[Any]:
    """Draw as many pairs of different nodes without a training or held-out edge either way."""
    size, count = len(graph), len(held_out)
    edges = np.concatenate([graph.arcs(), held_out])
    both = np.concatenate([edges, edges[:, ::-1]])
    known = np.unique(both[:, 0] * size + both[:, 1])
    rng = np.random.default_rng([seed, 2])
    found = np.empty(0, dtype=np.int64)
    for _ in range(100):
        pairs = rng.integers(size, size=(2 * count, 2))
        keys = pairs[:, 0] * size + pairs[:, 1]
        fresh = keys[(pairs[:, 0] != pairs[:, 1]) & ~np.isin(keys, known)]
        found = np.concatenate([found, fresh])
        if len(found) >= count:
            return np.column_stack([found[:count] // size, found[:count] % size])
    raise UserError("Almost every pair of nodes is an edge: there are too few pairs without one.")


def draw_picture(
    vectors: np.ndarray, graph: NodeGraph, title: str, path: Path, *, seed: int = 0
) -> Path:
    """Lay the nodes out with t-SNE (cosine) and draw them as SVG, without isolated nodes."""
    from sklearn.manifold import TSNE

    if path.suffix.lower() != ".svg":
        raise UserError(f"Cannot draw {path}: pictures are SVG, so end it in .svg.")
    refuse_no_folder(path)
    shown = np.flatnonzero(~graph.isolated)
    if len(shown) > MOST_POINTS:
        shown = np.sort(np.random.default_rng(seed).choice(shown, MOST_POINTS, replace=False))
    if len(shown) < 4:
        raise UserError("A picture needs at least 4 nodes with an edge.")
    perplexity = min(30.0, (len(shown) - 1) / 3)
    start = "pca" if vectors.shape[1] > 1 else "random"  # of one dimension there are no two axes
    tsne = TSNE(metric="cosine", init=start, perplexity=perplexity, random_state=seed)
    places = np.asarray(tsne.fit_transform(vectors[shown]))
    return write_svg(path, [Scatter(title, places, *_classes(graph.labels, shown), (840, 720))])


def _classes(labels: Labels | None, shown: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return the group of each node and the names of the groups, the largest class first."""
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
