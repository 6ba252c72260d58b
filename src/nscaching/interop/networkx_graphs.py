"""To and from NetworkX: a node an entity, an edge a triple, its relation an attribute."""

from __future__ import annotations

from typing import Any

import numpy as np

from nscaching.errors import UserError
from nscaching.extras import need
from nscaching.graph.knowledge_graph import SPLITS, KnowledgeGraph
from nscaching.graph.remarks import remarks


def to_networkx(graph: KnowledgeGraph) -> Any:
    """Return a ``MultiDiGraph``; edges have a ``relation``, their key too, and a ``split``."""
    made = need("networkx", "networkx", "to_networkx").MultiDiGraph(name=graph.name)
    made.add_nodes_from(graph.entities)
    entities, relations = graph.entities, graph.relations
    for split in reversed(SPLITS):  # what stands in two splits is a training triple
        made.add_edges_from(
            (entities[h], entities[t], relations[r], {"relation": relations[r], "split": split})
            for h, r, t in graph.split(split).tolist()
        )
    return made


def from_networkx(source: Any, relation: str, name: str | None) -> KnowledgeGraph:
    """Read a NetworkX graph; nodes are named by ``str``, and all are kept.

    The relation of an edge is its attribute ``relation``, or else its key where that is text. An
    edge's attribute ``split`` says where the triple goes. An undirected edge is read both ways.
    """
    need("networkx", "networkx", "from_networkx")
    entity_ids = {node: place for place, node in enumerate(source.nodes)}
    relation_ids: dict[str, int] = {}
    triples: dict[str, list[tuple[int, int, int]]] = {split: [] for split in SPLITS}
    keyed = source.is_multigraph()
    edges = source.edges(keys=True, data=True) if keyed else source.edges(data=True)
    for head, tail, *key, attributes in edges:
        named = attributes.get(relation, key[0] if key and isinstance(key[0], str) else None)
        if named is None:
            raise UserError(
                f"The edge from {head!r} to {tail!r} has no attribute '{relation}'; name the "
                "attribute that holds the relation with relation=."
            )
        split = attributes.get("split", "train")
        if split not in triples:
            raise UserError(
                f"The edge from {head!r} to {tail!r} has the split {split!r}; expected "
                "train, valid or test."
            )
        kind = relation_ids.setdefault(str(named), len(relation_ids))
        h, t = entity_ids[head], entity_ids[tail]
        triples[split].append((h, kind, t))
        if not source.is_directed() and h != t:
            triples[split].append((t, kind, h))
    arrays = (np.array(triples[split], dtype=np.int64).reshape(-1, 3) for split in SPLITS)
    notes = [] if source.is_directed() else ["Every undirected edge was read as two triples."]
    names = [str(node) for node in entity_ids]
    called = name or source.graph.get("name") or "graph"
    graph = KnowledgeGraph(names, list(relation_ids), *arrays, name=str(called), notes=notes)
    graph.notes.extend(remarks(graph))
    return graph
