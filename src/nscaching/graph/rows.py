"""The distinct pairs of the training triples, and the answers each pair has.

A cache keeps one row for each pair (r, t) and one for each pair (h, r). Numbering those pairs once
turns every later look-up into a gather: a training triple knows its two rows by index, and a row
knows the entities that complete it to a training triple.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Side = Literal["head", "tail"]


@dataclass(frozen=True)
class PairRows:
    """The distinct pairs on one side, ordered by relation and then by anchor."""

    of_triple: npt.NDArray[np.int32]
    """Row of each training triple; shape: (triples,)."""
    anchor: npt.NDArray[np.int32]
    """The fixed entity of each pair: the tail for head rows, the head for tail rows."""
    relation: npt.NDArray[np.int32]
    """The relation of each pair; shape: (rows,)."""
    offsets: npt.NDArray[np.int64]
    """Row i owns ``answers[offsets[i]:offsets[i + 1]]``; shape: (rows + 1,)."""
    answers: npt.NDArray[np.int32]
    """Entities that complete a pair to a training triple, ascending within a row."""

    def __len__(self) -> int:
        """How many distinct pairs there are."""
        return len(self.anchor)


@dataclass(frozen=True)
class TrainingRows:
    """The rows of both sides: ``head`` for pairs (r, t), ``tail`` for pairs (h, r)."""

    head: PairRows
    tail: PairRows


def pair_rows(
    triples: npt.NDArray[np.int32], side: Side, num_entities: int, num_relations: int
) -> PairRows:
    """Number the distinct pairs that are left when ``side`` is taken out of each triple."""
    if side not in ("head", "tail"):
        raise ValueError(f"side must be 'head' or 'tail', not {side!r}")
    anchor, answer = (2, 0) if side == "head" else (0, 2)
    wide = max(num_entities, 1)
    keys = triples[:, 1].astype(np.int64) * wide + triples[:, anchor]
    pairs, of_triple = np.unique(keys, return_inverse=True)
    of_triple = of_triple.reshape(-1)
    facts = np.sort(of_triple.astype(np.int64) * wide + triples[:, answer])
    facts = facts[np.diff(facts, prepend=-1) > 0]
    offsets = np.zeros(len(pairs) + 1, dtype=np.int64)
    np.cumsum(np.bincount(facts // wide, minlength=len(pairs)), out=offsets[1:])
    return PairRows(
        of_triple=of_triple.astype(np.int32),
        anchor=(pairs % wide).astype(np.int32),
        relation=(pairs // wide).astype(np.int32),
        offsets=offsets,
        answers=(facts % wide).astype(np.int32),
    )
