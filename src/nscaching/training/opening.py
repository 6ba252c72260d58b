"""From what a user names to the graph a run trains on: loaded, and split where it has no test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nscaching.graph import GraphSource, KnowledgeGraph, as_graph, load_graph
from nscaching.training import TrainConfig


def named_or_graph(source: GraphSource | None) -> KnowledgeGraph | str | Path | None:
    """Return a name or a path as it is, and whatever is in memory as a graph."""
    return source if source is None or isinstance(source, str | Path) else as_graph(source)


def open_graph(
    settings: TrainConfig, graph: KnowledgeGraph | str | Path | None = None
) -> KnowledgeGraph:
    """Return the graph to train on: the one given, or the one a configuration names.

    A single file, and a graph in memory with training triples only, are split as the configuration
    says; a folder or a data set is taken as it is.
    """
    if isinstance(graph, KnowledgeGraph):
        return _held_out(graph, settings)
    if graph is not None:
        settings = replace(settings, data=str(graph))
    single = Path(settings.data).expanduser().is_file()
    return load_graph(settings.data, split=settings.split if single else 0.0, seed=settings.seed)


def graph_of_run(
    graph: KnowledgeGraph, stored: KnowledgeGraph, settings: TrainConfig
) -> KnowledgeGraph | None:
    """Return the graph as a run has stored it, whole or split; None when it is another graph."""
    for given in (graph, _held_out(graph, settings)):
        if given.fingerprint == stored.fingerprint:
            return given
    return None


def _held_out(graph: KnowledgeGraph, settings: TrainConfig) -> KnowledgeGraph:
    """Split a graph that has training triples only; any other stays as it is."""
    if len(graph.valid) or len(graph.test) or graph.labelled or graph.on_disk:
        return graph
    return load_graph(graph, split=settings.split, seed=settings.seed)
