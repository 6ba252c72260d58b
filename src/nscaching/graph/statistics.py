"""What a graph is like: tails per head and heads per tail of each relation, and remarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nscaching.graph.names import SPLITS, Ids
from nscaching.graph.pairs import PairRows, TrainingRows, contained

if TYPE_CHECKING:
    from nscaching.graph.knowledge_graph import KnowledgeGraph

MANY = 1.5
"""From this average on, a side of a relation counts as N (the paper's threshold)."""

CARDINALITIES = ("1-1", "1-N", "N-1", "N-N", "no training fact")
"""Classes of relations: heads first, tails second; the last where there is nothing to count."""


@dataclass(frozen=True)
class RelationStatistics:
    """Averages over the distinct training triples; one entry per relation."""

    tails_per_head: npt.NDArray[np.float64]
    """Average number of tails of a head; 0 for a relation that training does not have."""
    heads_per_tail: npt.NDArray[np.float64]
    """Average number of heads of a tail; 0 for a relation that training does not have."""
    head_probability: npt.NDArray[np.float32]
    """Bernoulli sampling: how often to replace the head; 0.5 for a relation without triples."""
    cardinality: list[str]
    """One of :data:`CARDINALITIES`."""


def relation_statistics(rows: TrainingRows, num_relations: int) -> RelationStatistics:
    """Count from the numbered pairs: triples of a relation over its distinct pairs."""
    tails_per_head = _answers_per_pair(rows.tail, num_relations)
    heads_per_tail = _answers_per_pair(rows.head, num_relations)
    total = tails_per_head + heads_per_tail
    share = np.full(num_relations, 0.5)
    np.divide(tails_per_head, total, out=share, where=total > 0)
    number = 2 * (heads_per_tail >= MANY) + (tails_per_head >= MANY)
    number[total == 0] = len(CARDINALITIES) - 1
    cardinality = [CARDINALITIES[each] for each in number]
    return RelationStatistics(tails_per_head, heads_per_tail, share.astype(np.float32), cardinality)


def _answers_per_pair(rows: PairRows, num_relations: int) -> npt.NDArray[np.float64]:
    """Average the number of answers of a relation's pairs."""
    pairs = np.bincount(rows.relation, minlength=num_relations).astype(np.float64)
    answers = np.bincount(rows.relation, weights=np.diff(rows.offsets), minlength=num_relations)
    average = np.zeros(num_relations)
    np.divide(answers, pairs, out=average, where=pairs > 0)
    return average


def with_remarks(graph: KnowledgeGraph) -> KnowledgeGraph:
    """Add sentences on duplicates, unseen entities and leaked triples to the notes of a graph."""
    notes = graph.notes
    for split in SPLITS:
        copies = graph.duplicates[split]
        if copies:
            lines = "1 duplicate line" if copies == 1 else f"{copies:,} duplicate lines"
            notes.append(f"{lines} of {split} {'was' if copies == 1 else 'were'} dropped.")
    held_out = np.concatenate([graph.valid, graph.test])
    for one, many, columns, count in (
        ("entity", "entities", [0, 2], graph.num_entities),
        ("relation", "relations", [1], graph.num_relations),
    ):
        missing = np.zeros(count, dtype=bool)
        missing[held_out[:, columns]] = True
        for column in columns:
            missing[graph.train[:, column]] = False
        unseen = int(missing.sum())
        if unseen:
            word, verb = (one, "does") if unseen == 1 else (many, "do")
            notes.append(f"{unseen:,} {word} of valid and test {verb} not occur in train.")
    sizes = graph.num_entities, graph.num_relations
    leaked = int(contained(held_out, graph.train, *sizes).sum())
    if leaked:
        triples = "1 triple" if leaked == 1 else f"{leaked:,} triples"
        notes.append(f"{triples} of valid and test {'is' if leaked == 1 else 'are'} also in train.")
    return graph
