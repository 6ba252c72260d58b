"""Getting a graph from whatever it is in: a name, a file, NetworkX, PyG's ``edge_index``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nscaching.errors import UserError, nearest_names
from nscaching.graph.datasets import cache_folder
from nscaching.nodes.graph import Labels, NodeGraph, graph_of_edges
from nscaching.nodes.reading import read_edges, read_labels

#: Named graphs: the files of their edges (the first that is there) and of their labels.
NAMED = {
    "cora": (("edges.txt",), "labels.txt"),
    "citeseer": (("edges_known_nodes.txt", "edges.txt"), "labels.txt"),
}


def load_node_graph(
    source: Any, *, labels: str | Path | None = None, directed: bool = False
) -> NodeGraph:
    """Return a graph without relations.

    ``source`` is a :class:`NodeGraph`, ``"cora"`` or ``"citeseer"``, the path of an edge list, a
    NetworkX graph, a PyG ``Data`` or an ``edge_index`` of shape (2, edges). ``labels`` is a file
    with a node and its class a line.
    """
    if isinstance(source, str | Path):
        graph = _from_name_or_file(source, directed)
    else:
        graph = _from_object(source, directed)
    return graph if labels is None else read_labels(Path(labels).expanduser(), graph)


def _from_name_or_file(source: str | Path, directed: bool) -> NodeGraph:
    path = Path(source).expanduser()
    if path.is_file():
        return read_edges(path, directed=directed)
    name = str(source).casefold()
    if name in NAMED and not path.exists():
        return _named(name, directed)
    if path.is_dir():
        raise UserError(f"{path} is a folder; name the edge list in it, with --labels if any.")
    raise UserError(
        f"There is no file {path} and no graph of that name"
        f"{nearest_names(name, NAMED) or '; the named graphs are ' + ', '.join(NAMED) + '.'}"
    )


def _named(name: str, directed: bool) -> NodeGraph:
    edge_files, label_file = NAMED[name]
    folders = [Path(f).expanduser() for f in os.environ.get("NSCACHING_DATA", "").split(os.pathsep)]
    for folder in [*(folder for folder in folders if folder.name), cache_folder()]:
        for file in edge_files:
            if (folder / name / file).is_file() and (folder / name / label_file).is_file():
                graph = read_edges(folder / name / file, directed=directed, name=name)
                return read_labels(folder / name / label_file, graph)
    raise UserError(
        f"The graph {name} is not on this machine. Put {edge_files[-1]} (two papers a line) and "
        f"{label_file} (paper and class) into <folder>/{name} and set NSCACHING_DATA=<folder>."
    )


def _from_object(source: Any, directed: bool) -> NodeGraph:
    if isinstance(source, NodeGraph):
        return source
    if hasattr(source, "is_directed") and hasattr(source, "adj"):
        return from_networkx(source)
    if hasattr(source, "edge_index"):
        return _from_pyg(source, directed)
    if isinstance(source, torch.Tensor | np.ndarray):
        return from_edge_index(source, directed=directed)
    raise UserError(
        f"A {type(source).__name__} is no graph; give a name, a file, a NetworkX graph or an "
        "edge_index of shape (2, edges)."
    )


def from_networkx(graph: Any) -> NodeGraph:
    """Take a NetworkX graph; nodes are named by ``str``, ``weight`` is used where edges have it."""
    nodes = list(graph.nodes)
    ids = {node: at for at, node in enumerate(nodes)}
    names = [str(node) for node in nodes]
    if len(set(names)) < len(names):
        raise UserError("Two nodes of the NetworkX graph have the same str(); rename one.")
    triples = list(graph.edges(data="weight"))
    ends = np.array([(ids[a], ids[b]) for a, b, _ in triples], dtype=np.int64).reshape(-1, 2)
    weights = None
    if any(weight is not None for _, _, weight in triples):
        weights = np.array([1.0 if w is None else float(w) for _, _, w in triples])
    _check_weights(weights)
    name = str(getattr(graph, "name", "") or "graph")
    return graph_of_edges(names, ends, weights, directed=graph.is_directed(), name=name)


def from_edge_index(
    edge_index: Any, *, num_nodes: int | None = None, weights: Any = None, directed: bool = False
) -> NodeGraph:
    """Take PyG's ``edge_index`` (2, edges); nodes are named 0, 1, 2 and so on."""
    ends = np.asarray(edge_index)
    if ends.ndim != 2 or ends.shape[0] != 2 or not np.issubdtype(ends.dtype, np.integer):
        raise UserError(
            f"edge_index must be whole numbers of shape (2, edges), not {ends.dtype} of shape "
            f"{ends.shape}."
        )
    size = int(ends.max(initial=-1)) + 1 if num_nodes is None else num_nodes
    if ends.min(initial=0) < 0 or ends.max(initial=-1) >= size:
        raise UserError(f"edge_index names a node outside 0 to {size - 1}.")
    plain = None if weights is None else np.asarray(weights, dtype=np.float64).reshape(-1)
    if plain is not None and len(plain) != ends.shape[1]:
        raise UserError(f"There are {len(plain)} weights for {ends.shape[1]} edges.")
    _check_weights(plain)
    return graph_of_edges([str(node) for node in range(size)], ends.T, plain, directed=directed)


def _from_pyg(data: Any, directed: bool) -> NodeGraph:
    graph = from_edge_index(
        data.edge_index,
        num_nodes=data.num_nodes,
        weights=getattr(data, "edge_weight", None),
        directed=directed,
    )
    classes = getattr(data, "y", None)
    if classes is None:
        return graph
    distinct, of_node = np.unique(np.asarray(classes).reshape(-1), return_inverse=True)
    if len(of_node) != len(graph):
        return graph
    labels = Labels([str(value) for value in distinct], of_node.astype(np.int32))
    object.__setattr__(graph, "labels", labels)
    return graph


def _check_weights(weights: np.ndarray | None) -> None:
    if weights is not None and not (np.isfinite(weights) & (weights > 0)).all():
        raise UserError("Weights of edges must be numbers above 0.")
