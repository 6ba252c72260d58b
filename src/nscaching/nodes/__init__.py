"""Graphs without relations: walks, skip-gram with cached negatives, LINE, and what they are for.

The way through it: edge list -> :class:`NodeGraph` -> walks -> windows -> sampler -> step ->
:class:`NodeEmbedding` -> classification, link prediction. The cache is that of
:mod:`nscaching.sampling`, with one row per node.
"""

from __future__ import annotations

from nscaching.nodes.api import embed_nodes
from nscaching.nodes.embedding import NearNode, NodeEmbedding, load_nodes
from nscaching.nodes.graph import Labels, NodeGraph
from nscaching.nodes.loading import from_edge_index, from_networkx, load_node_graph
from nscaching.nodes.training import NodeConfig
from nscaching.nodes.windows import Walker

__all__ = [
    "Labels",
    "NearNode",
    "NodeConfig",
    "NodeEmbedding",
    "NodeGraph",
    "Walker",
    "embed_nodes",
    "from_edge_index",
    "from_networkx",
    "load_node_graph",
    "load_nodes",
]
