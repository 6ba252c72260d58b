"""Entities, relations and triples as users give them: by name or by id."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph

#: An entity or relation, by name or by id.
Reference = str | int
#: Triples of names or ids, or an array of ids.
Triples = Iterable[tuple[Reference, Reference, Reference]] | np.ndarray


def entity_of(graph: KnowledgeGraph, reference: Reference) -> int:
    """Return the id of an entity."""
    if isinstance(reference, str):
        return graph.entity_id(reference)
    return _resolve(reference, graph.entities, graph.entity_ids, "entity")


def relation_of(graph: KnowledgeGraph, reference: Reference) -> int:
    """Return the id of a relation."""
    if isinstance(reference, str):
        return graph.relation_id(reference)
    return _resolve(reference, graph.relations, graph.relation_ids, "relation")


def triple_of(graph: KnowledgeGraph, triple: Sequence[Reference]) -> tuple[int, int, int]:
    """Return the ids of a triple."""
    if isinstance(triple, str) or len(triple) != 3:
        raise UserError(f"Give a list of (head, relation, tail); {triple!r} is none.")
    head, relation, tail = triple
    return entity_of(graph, head), relation_of(graph, relation), entity_of(graph, tail)


def _resolve(index: Any, names: Sequence[str], ids: Mapping[str, int], what: str) -> int:
    """Return a checked id; a number that is also the name of another row could mean either."""
    try:
        if isinstance(index, bool | np.bool_):
            raise TypeError
        number = operator.index(index)
    except TypeError:
        raise UserError(f"Give the {what} by name or id, not {index!r}.") from None
    row = ids.get(str(number), number)
    if row != number:
        raise UserError(
            f"The {what} named '{number}' has the id {row}, so {number} could mean two things; "
            f"give names as text: '{number}'."
        )
    if not 0 <= number < len(names):
        raise UserError(f"There is no {what} {number}; ids go from 0 to {len(names) - 1}.")
    return number
