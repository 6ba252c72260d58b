"""Graphs from and for other libraries: data frames, NetworkX, RDF and PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nscaching.errors import UserError, shown
from nscaching.extras import need
from nscaching.graph.files import stem_of
from nscaching.graph.knowledge_graph import KnowledgeGraph
from nscaching.graph.loading import assemble, load_graph
from nscaching.graph.names import SPLITS, Reading, choose_columns, sentence, table_triples
from nscaching.graph.rdf import query_rdf, rdf_format
from nscaching.graph.splitting import with_remarks

if TYPE_CHECKING:
    from torch import Tensor

_EVERYTHING = "CONSTRUCT WHERE { ?head ?relation ?tail }"


def from_dataframe(
    frames: Sequence[Any], columns: Sequence[str] | None, name: str
) -> KnowledgeGraph:
    """Make a graph of one frame per split (train, valid, test); None for no such split.

    Frames of pandas, polars, pyarrow, and whatever else speaks Arrow.
    """
    readings = {
        split: _read_frame(frame, columns, f"the {split} frame")
        for split, frame in zip(SPLITS, frames, strict=True)
        if frame is not None
    }
    return with_remarks(assemble(readings, {}, name))


def _read_frame(frame: Any, columns: Sequence[str] | None, what: str) -> Reading:
    if not hasattr(frame, "__arrow_c_stream__"):
        raise UserError(
            f"{sentence(what)} is a {type(frame).__name__}; expected a frame of pandas (2.2 or "
            "newer), polars or pyarrow."
        )
    try:
        table = pa.table(frame)
    except pa.ArrowException as error:  # a pandas column of mixed values, say
        raise UserError(f"{sentence(what)} cannot be read as a table: {error}.") from error
    if columns is None:
        columns = choose_columns(table.column_names, what)
    if isinstance(columns, str) or len(columns) != 3:
        raise UserError(f"columns must name head, relation and tail, not {columns!r}.")
    absent = [column for column in columns if column not in table.column_names]
    if absent:
        raise UserError(
            f"{sentence(what)} has no column '{absent[0]}'; it has {', '.join(table.column_names)}."
        )
    return Reading(table_triples(table, columns, what))


def frame_rows(frame: Any) -> list[tuple[str, str, str]]:
    """Return the triples of names of a frame, in its order and with its repetitions."""
    named = _read_frame(frame, None, "the frame").triples
    columns = (column.to_pylist() for column in (named.head, named.relation, named.tail))
    return list(zip(*columns, strict=True))


def from_rdf(source: str | Path | Any, query: str | None, name: str) -> KnowledgeGraph:
    """Make a graph of a file, or of what a query makes of a file or a pyoxigraph store."""
    path = Path(source).expanduser() if isinstance(source, str | Path) else None
    called = name or (stem_of(path) if path else "graph")
    if path is not None and query is None:
        rdf_format(path)
        graph = load_graph(path)
        graph.name = called
        return graph
    return with_remarks(
        assemble({"train": query_rdf(path or source, query or _EVERYTHING)}, {}, called)
    )


def to_networkx(graph: KnowledgeGraph) -> Any:
    """Return a ``MultiDiGraph``; edges have a ``relation``, their key too, and a ``split``."""
    made = need("networkx", "networkx", "to_networkx").MultiDiGraph(name=graph.name)
    made.add_nodes_from(graph.entities)
    entities, relations = graph.entities, graph.relations
    for split in reversed(SPLITS):  # a triple of two splits is a training triple
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
        split = attributes.get("split", "train")
        place = f"The edge from {shown(repr(head))} to {shown(repr(tail))}"
        if named is None:
            raise UserError(
                f"{place} has no attribute '{relation}'; name the attribute that holds the "
                "relation with relation=."
            )
        if split not in triples:
            raise UserError(f"{place} has the split {split!r}; expected train, valid or test.")
        kind = relation_ids.setdefault(str(named), len(relation_ids))
        h, t = entity_ids[head], entity_ids[tail]
        triples[split].append((h, kind, t))
        if not source.is_directed() and h != t:
            triples[split].append((t, kind, h))
    arrays = (np.array(triples[split], dtype=np.int64).reshape(-1, 3) for split in SPLITS)
    notes = [] if source.is_directed() else ["Every undirected edge was read as two triples."]
    names = [str(node) for node in entity_ids]
    called = name or source.graph.get("name") or "graph"
    return with_remarks(
        KnowledgeGraph(names, list(relation_ids), *arrays, name=str(called), notes=notes)
    )


def edge_tensors(graph: KnowledgeGraph, split: str = "train") -> tuple[Tensor, Tensor]:
    """Return ``edge_index`` (2, n) and ``edge_type`` (n,), int64; needs torch only."""
    import torch

    triples = torch.from_numpy(graph.split(split)).long()
    return triples[:, [0, 2]].T.contiguous(), triples[:, 1].contiguous()


def to_pyg(graph: KnowledgeGraph, split: str = "train") -> Any:
    """Return a ``torch_geometric.data.Data`` with the edges of one split and all nodes."""
    data = need("torch_geometric.data", "pyg", "to_pyg").Data
    edge_index, edge_type = edge_tensors(graph, split)
    return data(edge_index=edge_index, edge_type=edge_type, num_nodes=graph.num_entities)
