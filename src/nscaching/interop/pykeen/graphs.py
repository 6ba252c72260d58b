"""Graphs as PyKEEN's data sets, and back; ids stay as they are."""

from __future__ import annotations

from typing import Any

import torch
from pykeen.datasets import EagerDataset
from pykeen.triples import CoreTriplesFactory, TriplesFactory

from nscaching.errors import UserError
from nscaching.graph.knowledge_graph import SPLITS, KnowledgeGraph
from nscaching.graph.remarks import remarks


def to_pykeen(graph: KnowledgeGraph) -> Any:
    """Return a PyKEEN data set with training, validation and testing triples."""
    training, validation, testing = (triples_factory(graph, split) for split in SPLITS)
    metadata = {"name": graph.name}
    return EagerDataset(
        training, testing, validation if len(graph.valid) else None, metadata=metadata
    )


def triples_factory(graph: KnowledgeGraph, split: str = "train") -> Any:
    """Return the triples of one split as a PyKEEN factory."""
    return TriplesFactory(
        mapped_triples=torch.from_numpy(graph.split(split)).long(),
        entity_to_id={name: place for place, name in enumerate(graph.entities)},
        relation_to_id={name: place for place, name in enumerate(graph.relations)},
        num_entities=graph.num_entities,
        num_relations=graph.num_relations,
    )


def from_pykeen(source: Any, name: str | None = None) -> KnowledgeGraph:
    """Make a graph of a PyKEEN data set, or of one triples factory, which becomes train."""
    if isinstance(source, CoreTriplesFactory):
        factories = (source, None, None)
        called = "graph"
    elif hasattr(source, "training") and hasattr(source, "testing"):
        factories = (source.training, source.validation, source.testing)
        called = (getattr(source, "metadata", None) or {}).get("name") or type(source).__name__
    else:
        raise UserError(
            f"from_pykeen takes a data set or a triples factory of PyKEEN, not a "
            f"{type(source).__name__}."
        )
    training = factories[0]
    arrays: list[Any] = [
        None if part is None else part.mapped_triples.cpu().numpy() for part in factories
    ]
    graph = KnowledgeGraph(
        _names(training, "entity", training.num_entities),
        _names(training, "relation", training.real_num_relations),
        *arrays,
        name=name or str(called),
    )
    graph.notes.extend(remarks(graph))
    return graph


def _names(factory: Any, kind: str, count: int) -> list[str]:
    """Return names in the order of their ids; a factory without names has its ids."""
    if not isinstance(factory, TriplesFactory):
        return [str(place) for place in range(count)]
    ids = factory.entity_to_id if kind == "entity" else factory.relation_to_id
    return [str(name) for name, _ in sorted(ids.items(), key=lambda item: item[1])]
