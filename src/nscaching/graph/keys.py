"""Pairs and facts as single numbers, which sort and compare faster than rows of three."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.int64]
_Integers = npt.NDArray[np.integer[Any]]


def pair_keys(anchors: _Integers, relations: _Integers, num_relations: int) -> Keys:
    """Return a number for each pair of an entity and a relation; ids of 31 bits always fit."""
    keys: Keys = anchors.astype(np.int64) * max(num_relations, 1) + relations
    return keys


def fact_keys(pairs: Keys, answers: _Integers, num_entities: int, num_relations: int) -> Keys:
    """Return a number for each fact, given as :func:`pair_keys` and what completes the pair.

    They sort by pair, then by answer, and are to be compared with those of the same call only:
    where the product of all three ranges does not fit in 64 bits, the pairs that occur are numbered
    first.
    """
    if num_entities * num_entities * num_relations >= 2**63:
        pairs = np.unique(pairs, return_inverse=True)[1].reshape(-1).astype(np.int64)
    keys: Keys = pairs * max(num_entities, 1) + answers
    return keys


def triple_keys(triples: _Integers, num_entities: int, num_relations: int) -> Keys:
    """Return the :func:`fact_keys` of triples, the tail completing head and relation; (n, 3)."""
    pairs = pair_keys(triples[:, 0], triples[:, 1], num_relations)
    return fact_keys(pairs, triples[:, 2], num_entities, num_relations)
