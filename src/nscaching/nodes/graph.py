"""A graph without relations: names of nodes, their neighbours in rows (CSR), and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from nscaching.errors import UserError, nearest_names
from nscaching.graph.names import Bools, Ids, Longs, checked_names


@dataclass(frozen=True)
class Labels:
    """A class for each node, or -1 where it is unknown."""

    classes: list[str]
    of_node: Ids  #: shape: (nodes,)

    @property
    def known(self) -> Longs:
        """The nodes whose class is known."""
        return np.flatnonzero(self.of_node >= 0)


@dataclass(frozen=True)
class NodeGraph:
    """Nodes and edges. An undirected edge stands in the rows of both its ends.

    There are no self-loops and no repeated edges: what a file repeats is one edge, whose weight
    is the sum where there are weights.
    """

    nodes: list[str]
    offsets: Longs
    """Node i owns ``neighbours[offsets[i]:offsets[i + 1]]``; shape: (nodes + 1,)."""
    neighbours: Ids
    """Ascending within a row."""
    weights: npt.NDArray[np.float32] | None = None
    directed: bool = False
    labels: Labels | None = None
    name: str = "graph"
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse names that a folder could not give back."""
        checked_names(self.nodes, "node")

    def __len__(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    @property
    def num_edges(self) -> int:
        """How many edges there are; an undirected one counts once."""
        return len(self.neighbours) if self.directed else len(self.neighbours) // 2

    @property
    def degrees(self) -> Longs:
        """How many neighbours each node has; shape: (nodes,)."""
        return np.diff(self.offsets)

    @property
    def isolated(self) -> Bools:
        """Which nodes no edge touches; shape: (nodes,)."""
        touched = self.degrees > 0
        if self.directed:
            touched[self.neighbours] = True
        return ~touched

    def edges(self) -> Longs:
        """Return the ends of each edge, once an edge; shape: (edges, 2)."""
        both = self.arcs()
        return both if self.directed else both[both[:, 0] < both[:, 1]]

    def without_edges(self, keep: Bools) -> NodeGraph:
        """Return the graph with only some of its edges; the nodes stay.

        Args:
            keep: Which of :meth:`edges` stay; shape: (edges,).

        Returns:
            A new graph.

        """
        arcs, weights = self.arcs(), self.weights
        if not self.directed:
            once = arcs[:, 0] < arcs[:, 1]
            arcs, weights = arcs[once], None if weights is None else weights[once]
        left = None if weights is None else weights[keep]
        kept = graph_of_edges(self.nodes, arcs[keep], left, directed=self.directed, name=self.name)
        return replace(kept, labels=self.labels, notes=self.notes)

    def arcs(self) -> Longs:
        """Return (node, neighbour) for every place in the rows; shape: (places, 2)."""
        ends = np.repeat(np.arange(len(self), dtype=np.int64), self.degrees)
        return np.column_stack([ends, self.neighbours.astype(np.int64)])

    def id_of(self, node: str | int) -> int:
        """Return the id of a node.

        Args:
            node: Name or id.

        Returns:
            Its place in ``nodes``; a :class:`UserError` names similar ones where there is none.

        """
        if isinstance(node, str):
            if node not in self._ids:
                near = nearest_names(node, self.nodes) or "; names are compared exactly."
                raise UserError(f"There is no node '{node}' in {self.name}{near}")
            return self._ids[node]
        if not 0 <= int(node) < len(self):
            raise UserError(f"There is no node {node}: ids go from 0 to {len(self) - 1}.")
        return int(node)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.nodes)}

    def with_labels(self, nodes: Sequence[str], classes: Sequence[str], source: str) -> NodeGraph:
        """Return the graph with classes; a labelled node that has no edge is added, isolated.

        Args:
            nodes: Names; a node may be named again with the same class.
            classes: The class of each of them.
            source: What an error message calls them, such as the name of their file.

        Returns:
            A new graph.

        """
        names, all_nodes = list(dict.fromkeys(classes)), list(self.nodes)
        number = {name: at for at, name in enumerate(names)}
        ids = dict(self._ids)
        for node in nodes:
            if node not in ids:
                ids[node] = len(all_nodes)
                all_nodes.append(node)
        of_node = np.full(len(all_nodes), -1, dtype=np.int32)
        for node, label in zip(nodes, classes, strict=True):
            at = ids[node]
            if of_node[at] not in (-1, number[label]):
                raise UserError(
                    f"{source} gives node '{node}' two classes, '{names[of_node[at]]}' and "
                    f"'{label}'; keep one."
                )
            of_node[at] = number[label]
        added = len(all_nodes) - len(self)
        note = [f"Labelled nodes of {source} without an edge: {added:,}."] if added else []
        return replace(
            self,
            nodes=all_nodes,
            offsets=np.concatenate([self.offsets, np.full(added, self.offsets[-1])]),
            labels=Labels(names, of_node),
            notes=[*self.notes, *note],
        )


def graph_of_edges(
    nodes: list[str],
    ends: npt.NDArray[Any],
    weights: npt.NDArray[Any] | None = None,
    *,
    directed: bool = False,
    name: str = "graph",
) -> NodeGraph:
    """Build the rows from edges by id; weights of repeated edges add up. (edges, 2), (edges,)."""
    size, notes = len(nodes), []
    ends = np.asarray(ends, dtype=np.int64).reshape(-1, 2)
    values = np.ones(len(ends), dtype=np.int8) if weights is None else weights
    loops = ends[:, 0] == ends[:, 1]
    if loops.any():
        notes.append(f"Self-loops removed from {name}: {int(loops.sum()):,}.")
        ends, values = ends[~loops], values[~loops]
    if not directed:
        ends, values = np.concatenate([ends, ends[:, ::-1]]), np.concatenate([values, values])
    rows = sparse.coo_array((values, tuple(ends.T)), shape=(size, size)).tocsr()
    summed = None if weights is None else rows.data.astype(np.float32)
    offsets, neighbours = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
    graph = NodeGraph(nodes, offsets, neighbours, summed, directed, None, name, notes)
    isolated = int(graph.isolated.sum())
    if isolated:
        notes.append(f"Nodes of {name} without an edge: {isolated:,}.")
    return graph
