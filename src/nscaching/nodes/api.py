"""The verbs for graphs without relations: embed nodes, and compare methods as the paper does."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.errors import TrainingInterrupted
from nscaching.nodes.embedding import NodeEmbedding, NodeFolder
from nscaching.nodes.graph import NodeGraph
from nscaching.nodes.loading import load_node_graph
from nscaching.nodes.tasks import classification_scores, hold_out_edges, means_and_deviations
from nscaching.nodes.training import NodeConfig, train_nodes
from nscaching.training import Progress
from nscaching.training.config import plain_options


def embed_nodes(
    graph: Any,
    *,
    labels: str | Path | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    config: NodeConfig | str | Path | None = None,
    progress: Progress | str = "auto",
    **options: Any,
) -> NodeEmbedding:
    """Embed the nodes of a graph without relations.

    Args:
        graph: What :func:`nscaching.load_node_graph` takes: ``"cora"``, the path of an edge list, a
            NetworkX graph, PyG's ``edge_index``.
        labels: File with a node and its class per line.
        out: Folder in which the embedding is kept. A stop (Ctrl-C) keeps it there as it is then,
            and raises :class:`TrainingInterrupted`.
        overwrite: Whether an embedding in that folder is replaced.
        config: Options as a :class:`NodeConfig` or a YAML file; keywords win.
        progress: ``"auto"``, ``"bar"``, ``"lines"`` or ``"none"``.
        **options: The options of :class:`NodeConfig`.

    Returns:
        A vector per node: classify nodes with it, predict links, draw it.

    Examples:
        >>> embedding = ns.embed_nodes("cora", epochs=1, out="runs/cora")  # doctest: +SKIP

    """
    shown = progress if isinstance(progress, Progress) else Progress(progress)
    settings = make_node_config(graph, config, options)
    folder = None if out is None else NodeFolder(out)
    with contextlib.nullcontext() if folder is None else folder.writing():
        if folder is not None:
            folder.refuse_occupied(overwrite)
        loaded = load_node_graph(graph, labels=labels, directed=settings.directed)
        return _embedded(loaded, folder, settings, shown)


def _embedded(
    loaded: NodeGraph, folder: NodeFolder | None, settings: NodeConfig, shown: Progress
) -> NodeEmbedding:
    """Train, and write the embedding to the folder, whose lock the caller has."""
    for note in loaded.notes:
        shown.say(note)
    held_out = np.empty((0, 2), dtype=np.int64)
    if settings.held_out > 0:
        edges, keep = hold_out_edges(loaded, settings.held_out, settings.seed)
        loaded, held_out = loaded.without_edges(keep), edges[~keep]
    trained = train_nodes(loaded, settings, shown)
    summary = {
        "out": None if folder is None else str(folder.path),
        "nodes": len(loaded),
        "edges": loaded.num_edges,
        "held_out_edges": len(held_out),
        "epochs": len(trained.losses),
        "loss": trained.losses[-1] if trained.losses else None,
        "seconds": trained.seconds,
        "stopped": trained.stopped is not None,
    }
    embedding = NodeEmbedding(
        settings,
        loaded,
        trained.vectors,
        context=trained.context,
        held_out=held_out,
        summary=summary,
    )
    kept = "nothing was kept"
    if folder is not None:
        embedding.replace_files(folder)
        kept = f"the embedding as it was then is in {folder.path}"
    if trained.stopped is not None:
        raise TrainingInterrupted(
            f"Stopped after {len(trained.losses)} whole epochs of {settings.epochs}; {kept}.",
            trained.stopped,
        )
    return embedding


def make_node_config(
    graph: Any, config: NodeConfig | str | Path | None, options: dict[str, Any]
) -> NodeConfig:
    """Return the checked configuration of an embedding; without a graph, on the data it names."""
    given = plain_options(config, NodeConfig)
    if graph is not None:
        name = graph if isinstance(graph, str | Path) else getattr(graph, "name", "")
        given = {**given, "data": str(name)}
    return NodeConfig.from_mapping({**given, **options}, "options")


# The paper's table of node classification: four methods on the same walks -------------------------

#: What each method is, in our options. One seed gives all of them the same walks.
METHODS: dict[str, dict[str, Any]] = {
    "LINE": {"model": "line", "sampler": "frequency"},
    "Node2vec": {"model": "node2vec", "sampler": "frequency"},
    "SeedNE": {"model": "node2vec", "sampler": "seedne"},
    "NSCaching": {"model": "node2vec", "sampler": "nscaching"},
}
#: Micro and macro F1 at 30, 50 and 70 % as the paper prints them (table ``tab:graphemb``).
PAPER: dict[str, dict[str, tuple[tuple[float, float], ...]]] = {
    "cora": {
        "LINE": ((0.8093, 0.8037), (0.8120, 0.8024), (0.8096, 0.8037)),
        "Node2vec": ((0.8130, 0.8061), (0.8142, 0.8064), (0.8376, 0.8323)),
        "SeedNE": ((0.8142, 0.8089), (0.8195, 0.8081), (0.8364, 0.8315)),
        "NSCaching": ((0.8185, 0.8108), (0.8273, 0.8184), (0.8413, 0.8334)),
    },
    "citeseer": {
        "LINE": ((0.5465, 0.4984), (0.5488, 0.5074), (0.5754, 0.5175)),
        "Node2vec": ((0.5755, 0.5253), (0.5793, 0.5357), (0.5936, 0.5410)),
        "SeedNE": ((0.5762, 0.5279), (0.5918, 0.5369), (0.6059, 0.5552)),
        "NSCaching": ((0.5864, 0.5297), (0.5982, 0.5531), (0.6120, 0.5712)),
    },
}
#: What was chosen on validation nodes (docs/nodes.md says how); the rest is as by default.
CHOSEN: dict[str, dict[str, dict[str, Any]]] = {
    "cora": {"NSCaching": {"negatives": 2, "alpha3": 1.0}},
    "citeseer": {
        "Node2vec": {"negatives": 10, "epochs": 3},
        "NSCaching": {"alpha3": 0.3, "cache_size": 200, "candidates": 200, "update_every": 1},
    },
}


@dataclass(frozen=True)
class MethodResult:
    """One line of the table."""

    method: str
    scores: np.ndarray  #: micro and macro F1; shape: (shares, seeds * draws, 2)
    seconds: float  #: of one training, the mean over the seeds
    paper: tuple[tuple[float, float], ...] | None

    def as_dict(self) -> dict[str, Any]:
        """Return means, spreads and the paper's numbers as plain values."""
        found = means_and_deviations(self.scores)
        for at, by_name in enumerate(found.values()):
            for number, values in enumerate(by_name.values()):
                values["paper"] = None if self.paper is None else self.paper[at][number]
        return {"seconds": self.seconds, **found}


def compare_methods(
    graph: NodeGraph,
    *,
    seeds: int = 3,
    draws: int = 5,
    progress: Progress | None = None,
    **options: Any,
) -> list[MethodResult]:
    """Train every method with every seed and classify the nodes; a seed fixes walks and draws."""
    shown = progress or Progress("none")
    results = []
    for method in METHODS:
        found = []
        for seed in range(seeds):
            shown.say(f"{graph.name}: {method}, seed {seed}")
            found.append(method_scores(graph, method, seed, draws=draws, progress=shown, **options))
        scores, seconds = zip(*found, strict=True)
        paper = PAPER.get(graph.name, {}).get(method)
        together = np.concatenate(scores, axis=1)
        results.append(MethodResult(method, together, float(np.mean(seconds)), paper))
    return results


def method_scores(
    graph: NodeGraph, method: str, seed: int, *, draws: int = 5, progress: Progress, **options: Any
) -> tuple[np.ndarray, float]:
    """Train one method once; return micro and macro F1 of each draw, and the seconds.

    Shape: (shares, draws, 2). Options win over what was chosen for the graph.
    """
    assert graph.labels is not None
    chosen = CHOSEN.get(graph.name, {}).get(method, {})
    settings = {**METHODS[method], **chosen, **options, "seed": seed}
    embedding = embed_nodes(graph, progress=progress, **settings)
    scores = classification_scores(embedding.vectors, graph.labels, draws=draws, seed=seed)
    return scores, embedding.summary["seconds"]
