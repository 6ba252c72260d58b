"""What a user should know about a graph before trusting a number computed on it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nscaching.graph.keys import triple_keys
from nscaching.graph.knowledge_graph import SPLITS, KnowledgeGraph


def remarks(graph: KnowledgeGraph) -> list[str]:
    """Return sentences on duplicates, unseen entities and triples that leak from training."""
    found = []
    for split in SPLITS:
        copies = graph.duplicates[split]
        if copies:
            lines = "1 duplicate line" if copies == 1 else f"{copies:,} duplicate lines"
            found.append(f"{lines} of {split} {'was' if copies == 1 else 'were'} dropped.")
    held_out = np.concatenate([graph.valid, graph.test])
    if len(held_out) == 0:
        return found
    for kind, names, columns in (
        ("entit", graph.entities, [0, 2]),
        ("relation", graph.relations, [1]),
    ):
        unseen = _unseen(graph.train[:, columns], held_out[:, columns], len(names))
        if unseen:
            one, many = ("y", "ies") if kind == "entit" else ("", "s")
            word = f"{kind}{one if unseen == 1 else many}"
            verb = "does" if unseen == 1 else "do"
            found.append(f"{unseen:,} {word} of valid and test {verb} not occur in train.")
    both = np.concatenate([held_out, graph.train])
    keys = triple_keys(both, graph.num_entities, graph.num_relations)
    leaked = np.isin(keys[: len(held_out)], keys[len(held_out) :]).sum()
    if leaked:
        triples = "1 triple" if leaked == 1 else f"{leaked:,} triples"
        found.append(f"{triples} of valid and test {'is' if leaked == 1 else 'are'} also in train.")
    return found


def _unseen(train: npt.NDArray[np.int32], other: npt.NDArray[np.int32], count: int) -> int:
    """Count the ids of ``other`` that ``train`` lacks."""
    missing = np.zeros(count, dtype=bool)
    missing[other.reshape(-1)] = True
    missing[train.reshape(-1)] = False
    return int(missing.sum())
