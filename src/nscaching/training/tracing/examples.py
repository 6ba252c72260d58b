"""Cache rows worth looking at, for a run that is traced and names none."""

from __future__ import annotations

import numpy as np

from nscaching.graph import KnowledgeGraph
from nscaching.models import Side
from nscaching.training.tracing.names import OPEN, RowName

#: Rows looked at where none is named.
EXAMPLES = 3


def example_rows(graph: KnowledgeGraph, count: int = EXAMPLES) -> list[RowName]:
    """Return a row for each of the most frequent relations.

    Of a relation it is the row with the most answers in valid and test, where false negatives can
    be seen, and of those with equally many the one with the most training answers.
    """
    frequency = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    frequent = np.argsort(-frequency, kind="stable")[:count]
    return [_row_of(graph, int(relation)) for relation in frequent if frequency[relation] > 0]


def _row_of(graph: KnowledgeGraph, relation: int) -> RowName:
    held_out = np.concatenate([graph.valid, graph.test])
    held_out = held_out[held_out[:, 1] == relation]
    found: list[tuple[int, int, Side, int]] = []
    for side in Side:
        pairs, anchor_column = (graph.rows.head, 2) if side is Side.HEAD else (graph.rows.tail, 0)
        rows = np.flatnonzero(pairs.relation == relation)
        hidden = np.bincount(held_out[:, anchor_column], minlength=graph.num_entities)
        hidden = hidden[pairs.anchor[rows]]
        answers = np.diff(pairs.offsets)[rows]
        best = int(np.lexsort((rows, -answers, -hidden))[0])
        found.append((int(hidden[best]), int(answers[best]), side, int(rows[best])))
    _, _, side, row = max(found, key=lambda each: each[:2])
    pairs = graph.rows.head if side is Side.HEAD else graph.rows.tail
    anchor = int(pairs.anchor[row])
    ends = (OPEN, graph.entities[anchor]) if side is Side.HEAD else (graph.entities[anchor], OPEN)
    text = f"{ends[0]}|{graph.relations[relation]}|{ends[1]}"
    return RowName(text, side, anchor, relation, row)
