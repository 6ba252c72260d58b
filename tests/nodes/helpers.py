"""Small graphs without relations."""

import numpy as np

from nscaching.nodes.graph import Labels, graph_of_edges


def graph_from(edges, nodes=None, weights=None, directed=False):
    """Make a graph of edges by id; nodes are named n0, n1, ..."""
    size = max(max(edge) for edge in edges) + 1 if nodes is None else nodes
    names = [f"n{at}" for at in range(size)]
    plain = None if weights is None else np.array(weights, dtype=np.float64)
    return graph_of_edges(names, np.array(edges), plain, directed=directed)


def random_edges(nodes=30, edges=90, seed=0):
    """Return distinct random pairs of different nodes, and weights."""
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(np.column_stack(np.triu_indices(nodes, k=1)))[:edges]
    return pairs, rng.uniform(0.2, 3.0, len(pairs))


def two_cliques(size=12):
    """Return two cliques with one edge between them, each a class of its own."""
    inside = [(a + shift, b + shift) for shift in (0, size) for a in range(size) for b in range(a)]
    graph = graph_from([*inside, (0, size)])
    of_node = np.repeat(np.array([0, 1], dtype=np.int32), size)
    object.__setattr__(graph, "labels", Labels(["left", "right"], of_node))
    return graph
