"""The graphs of cells: the named data sets, or a stand-in for a smoke run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph, load_graph
from nscaching.graph.datasets import find_dataset, known_dataset
from nscaching.nodes import NodeGraph, load_node_graph
from nscaching.nodes.graph import Labels, graph_of_edges

#: ``--on shape`` is a random graph with the sizes of the data set, ``shape/100`` a hundredth.
SHAPE = "shape"
#: Nodes, edges and classes of the graphs without relations.
_NODE_SHAPES: Mapping[str, tuple[int, int, int]] = {
    "cora": (2708, 5278, 7),
    "citeseer": (3264, 4536, 6),
}
#: A stand-in for a graph without relations is so much smaller where nothing else is said.
_NODE_SCALE = 20


class Sources:
    """Loads every graph once, and remembers which are not at hand."""

    def __init__(self, stand_in: str | None = None) -> None:
        self.stand_in = stand_in
        self.scale = _scale(stand_in)
        self._graphs: dict[str, KnowledgeGraph] = {}
        self._missing: dict[str, str] = {}

    def at_hand(self, dataset: str) -> bool:
        """Tell whether the data is on this machine; nothing is downloaded."""
        if self.stand_in is not None:
            return True
        if dataset in _NODE_SHAPES:
            return self._node_problem(dataset) is None
        return find_dataset(dataset) is not None

    def graph(self, dataset: str) -> KnowledgeGraph:
        """Return the graph; :class:`UserError` says why it cannot be had, each time the same."""
        if dataset in self._missing:
            raise UserError(self._missing[dataset])
        if dataset not in self._graphs:
            try:
                self._graphs[dataset] = self._load(dataset)
            except UserError as error:
                self._missing[dataset] = str(error)
                raise
        return self._graphs[dataset]

    def nodes(self, dataset: str) -> NodeGraph:
        """Return a graph without relations."""
        if self.stand_in is None:
            return load_node_graph(dataset)
        return node_shape(dataset, self.scale or _NODE_SCALE)

    def _load(self, dataset: str) -> KnowledgeGraph:
        if self.scale is not None:
            return shape_of(dataset, self.scale)
        return load_graph(self.stand_in or dataset)

    def _node_problem(self, dataset: str) -> str | None:
        try:
            load_node_graph(dataset)
        except UserError as error:
            return str(error)
        return None


def shape_of(dataset: str, scale: int = 1) -> KnowledgeGraph:
    """Return a random graph with the sizes of a named data set, divided by ``scale``."""
    info = known_dataset(dataset)
    if info is None:
        raise UserError(f"The shape of '{dataset}' is not known; name a data set of the paper.")
    rng = np.random.default_rng(0)
    entities = max(10, info.entities // scale)
    splits = []
    for size in (info.train, info.valid, info.test):
        columns = (entities, info.relations, entities)
        rows = max(10, size // scale)
        splits.append(np.stack([rng.integers(0, high, rows) for high in columns], axis=1))
    names = [[f"{kind}{i}" for i in range(n)] for kind, n in zip("er", columns[:2], strict=True)]
    return KnowledgeGraph(*names, *splits, name=f"{dataset}-shape")


def node_shape(dataset: str, scale: int) -> NodeGraph:
    """Return a random graph of the size of Cora or Citeseer; most edges stay within a class."""
    nodes, edges, classes = _NODE_SHAPES[dataset]
    nodes, edges = max(40, nodes // scale), max(80, edges // scale)
    rng = np.random.default_rng(0)
    of_node = np.arange(nodes) % classes
    heads = rng.integers(0, nodes, edges)
    near = (heads + classes * rng.integers(1, 4, edges)) % nodes
    tails = np.where(rng.random(edges) < 0.9, near, rng.integers(0, nodes, edges))
    made = graph_of_edges([str(i) for i in range(nodes)], np.stack([heads, tails], axis=1))
    labels = Labels([str(i) for i in range(classes)], of_node.astype(np.int32))
    return replace(made, labels=labels, name=dataset)


def _scale(stand_in: str | None) -> int | None:
    if stand_in is None or stand_in.partition("/")[0] != SHAPE:
        return None
    _, slash, divisor = stand_in.partition("/")
    if not slash:
        return 1
    if not divisor.isdigit() or int(divisor) < 1:
        raise UserError(f"--on {stand_in} is not a shape; write --on shape or --on shape/100.")
    return int(divisor)
