"""What the tests of the samplers share: a scorer of fixed scores, slow twins, short makers."""

import itertools

import numpy as np
import torch

from nscaching.kernels.hashing import hashed_gumbel, new_seed
from nscaching.models import Side
from nscaching.sampling import SAMPLERS, Batch, SamplerOptions, triple_columns
from nscaching.sampling.cache import PADDING
from nscaching.sampling.options import fitted, with_preset
from nscaching.sampling.softmax import keep_without_replacement

CPU = torch.device("cpu")
SIDES = (Side.HEAD, Side.TAIL)


class TableScorer:
    """Scores by side, anchor and entity from a fixed table; remembers the queries it was asked."""

    def __init__(self, num_entities, seed=0):
        self.table = torch.from_numpy(
            np.random.default_rng(seed).normal(size=(2, num_entities, num_entities))
        ).float()
        self.asked = {side: [] for side in SIDES}

    def score_candidates(self, side, anchor, relation, candidates):
        self.asked[side] += list(zip(anchor.tolist(), relation.tolist(), strict=True))
        scores = self.table[side, anchor.unsqueeze(1), candidates.clamp_min(0)]
        return scores.masked_fill(candidates < 0, -torch.inf)

    def queries(self, batch):
        return TableQueries(self, batch)

    def forget(self):
        self.asked = {side: [] for side in SIDES}


class TableQueries:
    """The questions of a batch, answered from the table of a scorer."""

    def __init__(self, scorer, batch):
        self.scorer, self.batch = scorer, batch

    def score(self, side, ids, places=None):
        anchor, relation = self.batch.anchor(side), self.batch.relations
        if places is not None:
            anchor, relation = anchor[places], relation[places]
        return self.scorer.score_candidates(side, anchor, relation, ids)

    def score_pool(self, side, pool, places=None):
        questions = len(self.batch) if places is None else len(places)
        return self.score(side, pool.expand(questions, -1), places)


def sampler_of(graph, name="nscaching", *, both_sides=False, **options):
    checked = SamplerOptions.from_mapping(with_preset({"sampler": name, **options}), "test")
    sides = {"both_sides": True} if both_sides else {}
    return SAMPLERS[name](graph, fitted(checked, graph.num_entities), CPU, **sides)


def queries_of(scorer, batch):
    """Return the questions of a batch, of a model or of a scorer of fixed scores."""
    if isinstance(scorer, TableScorer):
        return scorer.queries(batch)
    return scorer.queries(batch.heads, batch.relations, batch.tails)


def update(sampler, batch, scorer, generator):
    """Do what a step does between sampling and learning."""
    for job in sampler.update_jobs(batch, queries_of(scorer, batch), generator):
        job()


def scores_of(scorer, batch, drawn):
    """Score the true entities and the candidates of a step. Shape: (q, 1 + k + p)."""
    both, ids = len(drawn.ids) != len(batch), drawn.ids
    if drawn.pool is not None:
        ids = torch.cat([ids, drawn.pool.expand(len(ids), -1)], dim=1)
    heads, tails, relations = (
        part.repeat(2) if both else part for part in (batch.heads, batch.tails, batch.relations)
    )
    found = [
        scorer.score_candidates(side, anchor, relations, ids)
        for side, anchor in ((Side.HEAD, tails), (Side.TAIL, heads))
    ]
    return torch.where(drawn.replaces_head.unsqueeze(1), *found)


def learn(sampler, batch, drawn, scorer):
    """Tell a sampler the scores of its candidates; return them."""
    scores = scores_of(scorer, batch, drawn)
    sampler.learn(batch, drawn, scores, queries_of(scorer, batch))
    return scores


def batch_of(graph, index=None):
    """Make a batch of the training triples with these numbers; of all without."""
    index = torch.arange(len(graph.train)) if index is None else torch.as_tensor(index)
    return Batch.of(triple_columns(graph, CPU), index)


def known_answers(graph, side, anchor, relation):
    """Find by looking at every training triple which entities complete the pair."""
    at, other = (2, 0) if side is Side.HEAD else (0, 2)
    return {int(t[other]) for t in graph.train if t[at] == anchor and t[1] == relation}


def rows_of(sampler, side):
    """Yield (anchor, relation, ids, scores) of each cache row as plain values."""
    cache = sampler.caches[side]
    parts = (sampler.anchor[side], sampler.relation[side], cache.ids, cache.scores)
    yield from zip(*(part.tolist() for part in parts), strict=True)


def present(ids):
    """Return the entities of a row; fail where padding stands before one."""
    count = sum(entity != PADDING for entity in ids)
    assert all(entity != PADDING for entity in ids[:count])
    return ids[:count]


def keep(scores, valid, alpha, rescaling, count, generator):
    """Keep positions without replacement, with noise for rows 0, 1, ..."""
    rows, width = scores.shape
    noise = hashed_gumbel(new_seed(generator), torch.arange(rows), width)
    return keep_without_replacement(scores, valid, alpha, rescaling, count, noise)


def offer(cache, rows, count, generator):
    """Return fresh entities for the first so many rows of a cache."""
    return cache.fresh(torch.arange(rows), count, new_seed(generator))


def candidates_with(held, fresh, fresh_valid=None):
    """Put fresh entities behind what rows hold; -1 for those that may not enter."""
    if fresh_valid is not None:
        fresh = fresh.masked_fill(~fresh_valid, PADDING)
    return torch.cat([held.long(), fresh], dim=1)


def table_score(table):
    """Score ids of each row from a table (b, entities); -1 as -inf."""
    return lambda ids: table.gather(1, ids.clamp_min(0)).masked_fill(ids < 0, -torch.inf)


def offer_and_keep(cache, rows, fresh, fresh_valid, score, alpha, generator):
    """Update rows of a cache from themselves and from given fresh entities."""
    offered = candidates_with(cache.ids[rows], fresh, fresh_valid)
    cache.keep(rows, offered, score(offered), alpha, new_seed(generator))


def slow_rescale(scores):
    """Rescale one row of valid scores to [0, 1] between its 20th and 80th percentile."""
    scores = np.asarray(scores, dtype=np.float64)
    low, high = np.percentile(scores, [20, 80])
    if high > low:
        return np.clip((scores - low) / (high - low), 0, 1)
    return (scores > high).astype(np.float64)


def sigma(scores, alpha, rescaling):
    """Return the paper's probabilities of one row of valid scores."""
    scores = np.asarray(scores, dtype=np.float64)
    if alpha == np.inf:
        weights = (np.arange(len(scores)) == scores.argmax()).astype(np.float64)
    else:
        scaled = slow_rescale(scores) if rescaling == "quantile" else scores
        weights = np.exp(alpha * (scaled - scaled.max()))
    return weights / weights.sum()


def masked_sigma(scores, valid, alpha, rescaling):
    """Return the probabilities of one row, zero where it is not valid."""
    probabilities = np.zeros(len(scores))
    probabilities[np.asarray(valid)] = sigma(
        np.asarray(scores)[np.asarray(valid)], alpha, rescaling
    )
    return probabilities


def sequential_pairs(probabilities):
    """Return the chance of each ordered pair of two draws without replacement."""
    return {
        (i, j): probabilities[i] * probabilities[j] / (1 - probabilities[i])
        for i, j in itertools.permutations(range(len(probabilities)), 2)
    }
