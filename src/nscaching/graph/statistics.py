"""How many tails a head has and how many heads a tail has, for each relation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nscaching.graph.rows import PairRows, TrainingRows

MANY = 1.5
"""From this average on, a side of a relation counts as N (the paper's threshold)."""

CARDINALITIES = ("1-1", "1-N", "N-1", "N-N", "no training fact")
"""Classes of relations: heads first, tails second; the last where there is nothing to count."""


@dataclass(frozen=True)
class RelationStatistics:
    """Averages over the distinct training triples; one entry for each relation."""

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
