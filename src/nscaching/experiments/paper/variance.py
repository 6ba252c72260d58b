"""How the scores of false negatives and of large-gradient negatives vary (``fig:var_fn``).

NSCaching is trained once, and negatives are taken from its last cache. The same run is made again,
and after each epoch those and the held-out facts are scored; the variances are over the epochs so
far. Nothing is kept on the way: a study that is stopped starts again.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.evaluation import score_triples
from nscaching.experiments.paper.cells import Row
from nscaching.experiments.paper.making import POINTS
from nscaching.graph import KnowledgeGraph
from nscaching.graph.pairs import triple_keys
from nscaching.models import Side
from nscaching.report.numbers import thinned
from nscaching.runs.api import make_trainer
from nscaching.sampling.cache import PADDING
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.training import Progress, Trainer

Ids = npt.NDArray[np.int64]
#: Triples of each kind that are followed, as in the paper.
FOLLOWED = 5000


class RunningVariance:
    """Welford's variance of many numbers at once; shapes: (n,)."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean, self.deviation = np.zeros(size), np.zeros(size)

    def add(self, values: np.ndarray) -> float:
        """Take a value of each; return the mean of their variances so far."""
        self.count += 1
        gap = values - self.mean
        self.mean += gap / self.count
        self.deviation += gap * (values - self.mean)
        return float((self.deviation / self.count).mean())


def variance_row(settings: dict[str, Any], graph: KnowledgeGraph, progress: Progress) -> Row:
    """Return the mean variance of both kinds of triples after each epoch."""
    started = time.monotonic()
    first = _trainer(settings, graph, progress)
    first.run(resume=False)
    assert isinstance(first.sampler, NSCachingSampler)
    rng = np.random.default_rng(settings["seed"])
    facts = np.concatenate([graph.valid, graph.test]).astype(np.int64)
    followed = {
        "false negatives": _some(facts, rng),
        "negatives of the cache": _some(cached_negatives(graph, first.sampler), rng),
    }
    second = _trainer(settings, graph, progress)
    running = {name: RunningVariance(len(triples)) for name, triples in followed.items()}
    points: list[dict[str, float]] = []

    def look(epoch: int) -> None:
        found = {
            name: running[name].add(score_triples(second.model, triples))
            for name, triples in followed.items()
        }
        points.append({"epoch": epoch, **found})

    second.after_epoch = look
    second.run(resume=False)
    return {
        "variance": thinned(points, POINTS),
        "followed": {name: len(triples) for name, triples in followed.items()},
        "seconds": time.monotonic() - started,
        "device": str(second.device),
    }


def cached_negatives(graph: KnowledgeGraph, sampler: NSCachingSampler) -> Ids:
    """Return the triples that the caches hold, without those that are facts. Shape: (n, 3)."""
    parts = []
    for side, rows in ((Side.HEAD, graph.rows.head), (Side.TAIL, graph.rows.tail)):
        held = sampler.caches[side].ids.cpu().numpy().astype(np.int64)
        size = held.shape[1]
        anchor, relation = (np.repeat(each, size) for each in (rows.anchor, rows.relation))
        head, tail = (held.ravel(), anchor) if side is Side.HEAD else (anchor, held.ravel())
        parts.append(np.stack([head, relation, tail], axis=1)[held.ravel() != PADDING])
    triples = np.unique(np.concatenate(parts).astype(np.int64), axis=0)
    both = np.concatenate([triples, graph.train, graph.valid, graph.test])
    keys = triple_keys(both, graph.num_entities, graph.num_relations)
    return triples[~np.isin(keys[: len(triples)], keys[len(triples) :])]


def _some(triples: Ids, rng: np.random.Generator) -> Ids:
    if len(triples) <= FOLLOWED:
        return triples
    return triples[rng.choice(len(triples), FOLLOWED, replace=False)]


def _trainer(settings: dict[str, Any], graph: KnowledgeGraph, progress: Progress) -> Trainer:
    # Validation would neither change the training nor the scores that are followed.
    return make_trainer(graph, out=None, progress=progress, **{**settings, "valid_every": 0})
