"""Graphs as PyKEEN's data sets and back, and a trained run as a PyKEEN model with the same scores.

Ids stay as they are. What our scoring functions apply on use (entities of length one, unit normals)
is written into the tables of the model. PyKEEN 1.11 has no equal of two of ours: its RotatE takes
the Euclidean norm of the whole vector where the paper sums the moduli, and its TransD cuts
projected entities to length one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from pykeen.datasets import EagerDataset
from pykeen.models import CP, ComplEx, DistMult, ERModel, TransE
from pykeen.nn.modules import TransHInteraction
from pykeen.triples import CoreTriplesFactory, TriplesFactory
from pykeen.utils import NoRandomSeedNecessary
from torch import Tensor
from torch.nn.functional import normalize

from nscaching.errors import UserError
from nscaching.graph.knowledge_graph import KnowledgeGraph
from nscaching.graph.loading import with_remarks
from nscaching.graph.names import SPLITS

if TYPE_CHECKING:
    from nscaching.runs.run import Run

#: What a converter returns: the model, then its tables for entities and for relations.
Converted = tuple[Any, list[Tensor], list[Tensor]]


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
    return with_remarks(graph)


def _names(factory: Any, kind: str, count: int) -> list[str]:
    """Return names in the order of their ids; a factory without names has its ids."""
    if not isinstance(factory, TriplesFactory):
        return [str(place) for place in range(count)]
    ids = factory.entity_to_id if kind == "entity" else factory.relation_to_id
    return [str(name) for name, _ in sorted(ids.items(), key=lambda item: item[1])]


def to_pykeen_model(run: Run) -> Any:
    """Return the model of a run as a PyKEEN model; scores are equal up to rounding.

    Args:
        run: A run whose scoring function PyKEEN has, without reciprocal relations.

    Returns:
        A PyKEEN model on the CPU.

    Examples:
        >>> from nscaching.interop.pykeen import to_pykeen_model
        >>> plain = ns.train("world", scoring="distmult", epochs=1, dim=4, progress="none")
        >>> model = to_pykeen_model(plain)

    """
    scoring = run.config.scoring
    if scoring not in _CONVERTERS:
        raise UserError(
            f"PyKEEN has no model that scores as our {scoring} does; those that can be converted "
            f"are {', '.join(_CONVERTERS)}."
        )
    if run.model.reciprocal:
        raise UserError(
            "PyKEEN's models have one row per relation, and a run with reciprocal relations has "
            "two; train without reciprocal to convert it."
        )
    entity, relation = run.model.entity.detach().cpu(), run.model.relation.detach().cpu()
    common = {
        "triples_factory": triples_factory(run.graph),
        "random_seed": NoRandomSeedNecessary,  # every parameter is set below
    }
    model, entity_tables, relation_tables = _CONVERTERS[scoring](run, common, entity, relation)
    representations = (*model.entity_representations, *model.relation_representations)
    tables = (*entity_tables, *relation_tables)
    with torch.no_grad():
        for representation, table in zip(representations, tables, strict=True):
            weight = representation._embeddings.weight
            weight.copy_(table.reshape(weight.shape))
    model.eval()
    return model


def _transe(run: Run, common: dict[str, Any], entity: Tensor, relation: Tensor) -> Converted:
    dim, norm = run.config.dim, run.model.scoring.norm
    model = TransE(**common, embedding_dim=dim, scoring_fct_norm=norm)
    return model, [normalize(entity, dim=1)], [relation]


def _transh(run: Run, common: dict[str, Any], entity: Tensor, relation: Tensor) -> Converted:
    # Not the class TransH: its first table of relations holds what the interaction takes as normal.
    dim, norm = run.config.dim, run.model.scoring.norm
    model = ERModel(
        **common,
        interaction=TransHInteraction,
        interaction_kwargs={"p": norm, "power_norm": False},
        entity_representations_kwargs={"shape": dim, "constrainer": normalize},
        relation_representations_kwargs=[{"shape": dim, "constrainer": normalize}, {"shape": dim}],
    )
    translation, normal = relation.chunk(2, dim=1)
    return model, [normalize(entity, dim=1)], [normalize(normal, dim=1), translation]


def _distmult(run: Run, common: dict[str, Any], entity: Tensor, relation: Tensor) -> Converted:
    model = DistMult(
        **common,
        embedding_dim=run.config.dim,
        entity_constrainer=None,
        regularizer=None,
    )
    return model, [entity], [relation]


def _complex(run: Run, common: dict[str, Any], entity: Tensor, relation: Tensor) -> Converted:
    model = ComplEx(**common, embedding_dim=run.config.dim, regularizer=None)
    return model, [_interleaved(entity)], [_interleaved(relation)]


def _simple(run: Run, common: dict[str, Any], entity: Tensor, relation: Tensor) -> Converted:
    # PyKEEN's SimplE pairs h1 with t1. Its CP has a table for heads and one for tails: the tails
    # are our rows with their halves exchanged, so that h1 meets t2 and h2 meets t1.
    model = CP(**common, embedding_dim=run.config.dim, rank=2)
    exchanged = entity.roll(run.config.dim, dims=1)
    return model, [entity, exchanged], [relation]


def _interleaved(table: Tensor) -> Tensor:
    """Turn rows [re, im] into complex numbers, as pairs of floats. Shapes: (n, 2d) -> (n, d, 2)."""
    return torch.stack(table.chunk(2, dim=1), dim=-1)


_CONVERTERS: dict[str, Callable[[Run, dict[str, Any], Tensor, Tensor], Converted]] = {
    "transe": _transe,
    "transh": _transh,
    "distmult": _distmult,
    "complex": _complex,
    "simple": _simple,
}
