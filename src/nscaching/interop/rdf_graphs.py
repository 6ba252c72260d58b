"""From RDF files and stores, whole or by a SPARQL query; the reader is ``nscaching.graph.rdf``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nscaching.graph.files import stem_of
from nscaching.graph.knowledge_graph import KnowledgeGraph
from nscaching.graph.loading import assemble, load_graph
from nscaching.graph.rdf import query_rdf, rdf_format
from nscaching.graph.remarks import remarks

_EVERYTHING = "CONSTRUCT WHERE { ?head ?relation ?tail }"


def from_rdf(source: str | Path | Any, query: str | None, name: str) -> KnowledgeGraph:
    """Make a graph of a file, or of what a query makes of a file or a pyoxigraph store."""
    path = Path(source).expanduser() if isinstance(source, str | Path) else None
    called = name or (stem_of(path) if path else "graph")
    if path is not None and query is None:
        rdf_format(path)
        graph = load_graph(path)
        graph.name = called
        return graph
    graph = assemble({"train": query_rdf(path or source, query or _EVERYTHING)}, {}, called)
    graph.notes.extend(remarks(graph))
    return graph
