"""Loading a graph: a name, an edge list, NetworkX, PyG's ``edge_index``; and label files.

Files have two or three columns, separated by tabs, commas or spaces.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from nscaching.errors import UserError, nearest_names
from nscaching.graph.columns import ROLES
from nscaching.graph.datasets import cache_folder, data_folders
from nscaching.graph.files import Source, read_bytes, stem_of
from nscaching.graph.names import number_names
from nscaching.graph.tables import fast_columns, text_lines
from nscaching.nodes.graph import Labels, NodeGraph, graph_of_edges

#: Named graphs: the files of their edges (the first that is there) and of their labels.
NAMED = {
    "cora": (("edges.txt",), "labels.txt"),
    "citeseer": (("edges_known_nodes.txt", "edges.txt"), "labels.txt"),
}

_SOURCES, _TARGETS = ROLES[0] | {"src", "node1", "u"}, ROLES[2] | {"dst", "node2", "v"}
_COMMENTS = re.compile(rb"\A(?:[ \t]*(?:[#%][^\n]*)?\r?\n)+")


def load_node_graph(
    source: Any, *, labels: str | Path | None = None, directed: bool = False
) -> NodeGraph:
    """Return a graph without relations.

    Args:
        source: A :class:`NodeGraph`, ``"cora"`` or ``"citeseer"``, the path of an edge list, a
            NetworkX graph, a PyG ``Data`` or an ``edge_index`` of shape (2, edges).
        labels: File with a node and its class per line.
        directed: Whether edges lead one way only; a graph that says so itself is taken as it is.

    Returns:
        The graph.

    Examples:
        >>> import torch
        >>> ring = ns.load_node_graph(torch.tensor([[0, 1, 2], [1, 2, 0]]))

    """
    if isinstance(source, str | Path):
        graph = _from_name_or_file(source, directed)
    elif isinstance(source, NodeGraph):
        graph = source
    elif hasattr(source, "is_directed") and hasattr(source, "adj"):
        graph = from_networkx(source)
    elif hasattr(source, "edge_index"):
        graph = _from_pyg(source, directed)
    elif isinstance(source, torch.Tensor | np.ndarray):
        graph = from_edge_index(source, directed=directed)
    else:
        raise UserError(
            f"A {type(source).__name__} is no graph; give a name, a file, a NetworkX graph or an "
            "edge_index of shape (2, edges)."
        )
    if directed and not graph.directed:
        raise UserError(
            "The edges of this graph have no direction, so directed has no effect; drop it, or "
            "give a directed graph, such as a NetworkX DiGraph."
        )
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
    for folder in [*data_folders(), cache_folder()]:
        for file in edge_files:
            if (folder / name / file).is_file() and (folder / name / label_file).is_file():
                graph = read_edges(folder / name / file, directed=directed, name=name)
                return read_labels(folder / name / label_file, graph)
    raise UserError(
        f"The graph {name} is not on this machine. Put {edge_files[-1]} (two papers per line) and "
        f"{label_file} (paper and class) into <folder>/{name} and set NSCACHING_DATA=<folder>."
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
    return replace(graph, labels=labels)


def _check_weights(weights: np.ndarray | None) -> None:
    if weights is not None and not (np.isfinite(weights) & (weights > 0)).all():
        raise UserError("Weights of edges must be numbers above 0.")


# Files -------------------------------------------------------------------------------------------


def read_edges(path: Path, *, directed: bool = False, name: str | None = None) -> NodeGraph:
    """Read an edge list: two names per line and, if there is a third column, a weight above 0."""
    columns = _columns(path, "edge", ("source", "target", "weight"), least=2)
    first = [column[0].as_py().strip().casefold() for column in columns]
    notes = []
    if first[0] in _SOURCES and first[1] in _TARGETS:
        columns = [column.slice(1) for column in columns]
        notes.append(f"The first line of {path.name} was taken as column names.")
        if len(columns[0]) == 0:
            raise UserError(f"{path} has column names but no edge; expected one edge per line.")
    weights = _weights(columns[2], path) if len(columns) == 3 else None
    names, (ends,) = number_names([columns[:2]])
    graph = graph_of_edges(names, ends, weights, directed=directed, name=name or stem_of(path))
    graph.notes[:0] = notes
    return graph


def read_labels(path: Path, graph: NodeGraph) -> NodeGraph:
    """Return the graph with the classes of a file: node and class per line."""
    nodes, classes = _columns(path, "labelled node", ("node", "class"), least=2)
    return graph.with_labels(nodes.to_pylist(), classes.to_pylist(), path.name)


def _columns(path: Path, what: str, roles: tuple[str, ...], least: int) -> list[Any]:
    """Return the columns as strings; how many there are is read off the first line."""
    data = _COMMENTS.sub(lambda found: b"\n" * found[0].count(b"\n"), read_bytes(path))
    found = re.search(rb"[^\r\n]*[^\s][^\r\n]*", data)
    if found is None:
        raise UserError(f"{path} is empty; expected one {what} per line: {', '.join(roles)}.")
    first = found[0]
    delimiter = next((mark for mark in ("\t", ",") if mark.encode() in first.strip()), " ")
    if delimiter == " ":
        data, delimiter = re.sub(rb"(?m)^ +| +(?=\r?$)", b"", data), "\t"
        data = re.sub(rb" +", b"\t", data)
        first = re.sub(rb" +", b"\t", first.strip())
    width = len(first.split(delimiter.encode()))
    if not least <= width <= len(roles):
        raise UserError(
            f"{path} has {width} column{'s' * (width != 1)} in its first line; expected "
            f"{' or '.join(str(n) for n in range(least, len(roles) + 1))} ({', '.join(roles)}) "
            "separated by tabs, commas or spaces."
        )
    source = Source(path, data)
    columns = fast_columns(source, delimiter, width)
    if columns is None:
        raise _bad_line(source, delimiter, roles[:width])
    return [column.combine_chunks() for column in columns]


def _bad_line(source: Source, delimiter: str, roles: tuple[str, ...]) -> UserError:
    """Find the line that could not be read; one that is not UTF-8 is named as it is met."""
    for number, line in text_lines(source):
        fields = line.split(delimiter)
        if line.strip() and (len(fields) != len(roles) or not all(fields)):
            return UserError(
                f"Line {number} of {source.path} has {sum(map(bool, fields))} columns; expected "
                f"{len(roles)} ({', '.join(roles)}) as in the first line."
            )
    wanted = ", ".join(roles)
    return UserError(f"{source.path} cannot be read as columns of text; expected {wanted}.")


def _weights(column: Any, path: Path) -> np.ndarray:
    """Return the weights as numbers, or name the first edge whose weight is none."""
    try:
        weights = pc.cast(pc.utf8_trim_whitespace(column), pa.float64()).to_numpy(False)
    except pa.ArrowInvalid:
        weights = np.array([_number_or_nan(text) for text in column.to_pylist()])
    wrong = ~(np.isfinite(weights) & (weights > 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise UserError(
            f"Edge {at + 1} of {path} has the weight '{column[at].as_py()}'; expected a number "
            "above 0 in the third column."
        )
    return np.asarray(weights, dtype=np.float64)


def _number_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
