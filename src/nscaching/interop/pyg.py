"""To PyTorch Geometric: edges of one split as tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nscaching.extras import need
from nscaching.graph.knowledge_graph import KnowledgeGraph


def edge_tensors(graph: KnowledgeGraph, split: str = "train") -> tuple[Tensor, Tensor]:
    """Return ``edge_index`` (2, n) and ``edge_type`` (n,), int64; needs torch only."""
    triples = torch.from_numpy(graph.split(split)).long()
    return triples[:, [0, 2]].T.contiguous(), triples[:, 1].contiguous()


def to_pyg(graph: KnowledgeGraph, split: str = "train") -> Any:
    """Return a ``torch_geometric.data.Data`` with the edges of one split and all nodes."""
    data = need("torch_geometric.data", "pyg", "to_pyg").Data
    edge_index, edge_type = edge_tensors(graph, split)
    return data(edge_index=edge_index, edge_type=edge_type, num_nodes=graph.num_entities)
