"""Rows and triples by name: ``HEAD|RELATION|?``, ``?|RELATION|TAIL`` and ``HEAD|RELATION|TAIL``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.models import Side

#: Stands where a row has its negatives.
OPEN = "?"


@dataclass(frozen=True)
class RowName:
    """A cache row by name, with what it is in the graph."""

    text: str
    side: Side  #: of the entities that it holds
    anchor: int
    relation: int
    row: int


def find_row(graph: KnowledgeGraph, text: str) -> RowName:
    """Return the cache row of a name."""
    head, relation, tail = _parts(text, "trace_row", "HEAD|RELATION|? or ?|RELATION|TAIL")
    if (head == OPEN) == (tail == OPEN):
        raise UserError(
            f"trace_row '{text}' must have a ? in place of its head or its tail, as in "
            "'HEAD|RELATION|?'."
        )
    side, name = (Side.HEAD, tail) if head == OPEN else (Side.TAIL, head)
    anchor, relation_id = graph.entity_id(name), graph.relation_id(relation)
    pairs = graph.rows.head if side is Side.HEAD else graph.rows.tail
    found = np.flatnonzero((pairs.anchor == anchor) & (pairs.relation == relation_id))
    if len(found) == 0:
        raise UserError(
            f"trace_row '{text}': no training triple of '{graph.name}' fits it, so the cache has "
            "no such row; name a pair that occurs in training."
        )
    return RowName(text, side, anchor, relation_id, int(found[0]))


def find_triple(graph: KnowledgeGraph, text: str) -> tuple[int, int, int]:
    """Return the ids of a triple by name."""
    head, relation, tail = _parts(text, "trace_triple", "HEAD|RELATION|TAIL")
    return graph.entity_id(head), graph.relation_id(relation), graph.entity_id(tail)


def _parts(text: str, option: str, form: str) -> tuple[str, str, str]:
    """Part a name at its bars, or at its tabs where there are some: names may hold bars."""
    parts = text.split("\t" if "\t" in text else "|")
    if len(parts) != 3:
        raise UserError(
            f"{option} must be {form}, not '{text}'; where a name holds a |, part them by tabs."
        )
    head, relation, tail = (part.strip() for part in parts)
    return head, relation, tail
