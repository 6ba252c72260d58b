"""The verb for graphs without relations: embed the nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nscaching.errors import TrainingInterrupted
from nscaching.nodes.config import NodeConfig
from nscaching.nodes.embedding import NodeEmbedding
from nscaching.nodes.folder import NodeFolder
from nscaching.nodes.loading import load_node_graph
from nscaching.nodes.tasks import hold_out_edges
from nscaching.nodes.training import train_nodes
from nscaching.training import Progress
from nscaching.training.config import read_yaml


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

    ``graph`` is what :func:`nscaching.load_node_graph` takes: ``"cora"``, the path of an edge list,
    a NetworkX graph, PyG's ``edge_index``. Options are those of :class:`NodeConfig`, as keywords or
    in ``config``; keywords win. With ``out`` the embedding is kept in a folder. A stop
    (Ctrl-C) keeps it there as it is then, and raises :class:`TrainingInterrupted`.
    """
    shown = progress if isinstance(progress, Progress) else Progress(progress)
    settings = make_node_config(graph, config, options)
    if out is not None:
        NodeFolder(out).refuse_occupied(overwrite)
    loaded = load_node_graph(graph, labels=labels, directed=settings.directed)
    for note in loaded.notes:
        shown.say(note)
    held_out = np.empty((0, 2), dtype=np.int64)
    if settings.held_out > 0:
        edges, keep = hold_out_edges(loaded, settings.held_out, settings.seed)
        loaded, held_out = loaded.without_edges(keep), edges[~keep]
    trained = train_nodes(loaded, settings, shown)
    summary = {
        "out": None if out is None else str(out),
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
    if out is not None:
        embedding.save(out, overwrite=overwrite)
    if trained.stopped is not None:
        kept = (
            f"the embedding as it was then is in {out}" if out is not None else "nothing was kept"
        )
        raise TrainingInterrupted(
            f"Stopped after {len(trained.losses)} whole epochs of {settings.epochs}; {kept}."
        )
    return embedding


def make_node_config(
    graph: Any, config: NodeConfig | str | Path | None, options: dict[str, Any]
) -> NodeConfig:
    """Return the checked configuration of an embedding; without a graph, on the data it names."""
    given: dict[str, Any] = {}
    if isinstance(config, NodeConfig):
        given = config.as_dict()
    elif config is not None:
        given = read_yaml(Path(config))
        NodeConfig.from_mapping(given, str(config))  # complains with the name of the file
    if graph is not None:
        name = graph if isinstance(graph, str | Path) else getattr(graph, "name", "")
        given = {**given, "data": str(name)}
    return NodeConfig.from_mapping({**given, **options}, "options")
