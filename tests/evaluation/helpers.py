"""Filtered ranking, written slowly."""

import numpy as np
import torch

from nscaching.models import EmbeddingModel, Side
from nscaching.models.distmult import DistMult
from tests.conftest import seeded
from tests.models.twins import TwinModel


def tied_model(entities, relations, dim=3, seed=0):
    """Make a DistMult of small whole numbers, whose scores are exact and often equal."""
    rng = seeded(seed)
    tables = [
        torch.randint(-1, 2, (rows, dim), generator=rng).float() for rows in (entities, relations)
    ]
    return EmbeddingModel(DistMult(dim), *tables)


def competitors(graph, side, h, r, t, loops=True):
    """Return the entities that the true one is ranked among, itself left out.

    Without loops so is the anchor, where no training fact of the relation is a loop.
    """
    triples = (tuple(x) for s in ("train", "valid", "test") for x in graph.split(s).tolist())
    if side is Side.HEAD:
        known = {x[0] for x in triples if x[1:] == (r, t)} | {h}
    else:
        known = {x[2] for x in triples if x[:2] == (h, r)} | {t}
    if not loops and not any(x[0] == x[2] for x in graph.train.tolist() if x[1] == r):
        known |= {t if side is Side.HEAD else h}
    return [entity for entity in range(graph.num_entities) if entity not in known]


def slow_ranks(model, graph, triples, side, ties, loops=True):
    """Rank by Python loops over float64 scores; returns ranks and how many they are among."""
    twin = TwinModel(model)
    ranks, among = [], []
    for h, r, t in np.asarray(triples).tolist():
        true = twin.score(h, r, t)
        others = [
            twin.score(e, r, t) if side is Side.HEAD else twin.score(h, r, e)
            for e in competitors(graph, side, h, r, t, loops)
        ]
        better = sum(score > true for score in others)
        equal = sum(score == true for score in others)
        share = {"optimistic": 0.0, "mean": 0.5, "pessimistic": 1.0}[ties]
        ranks.append(1 + better + share * equal)
        among.append(len(others) + 1)
    return ranks, among
