"""Cache rows under a bound on memory: frequent pairs keep a row, rare ones share some.

Rare pairs are taken in the order of their relation and entity, so that those which share a row are
of one relation, save at its ends: what is hard for one of them has the type that is hard for all.
The known positives of a shared row are those of all its pairs, hence no pair ever draws its own.
"""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph, PairRows, TrainingRows
from nscaching.graph.names import REJECTED, Integers
from nscaching.graph.pairs import ranges, sorted_distinct
from nscaching.sampling.options import SamplerOptions

#: Bytes of an entry: id and score; count, mean and deviation where they are followed; and of a row.
_ENTRY, _FOLLOWED, _ROW = 4 + 2, 3 * 4, 8
#: Answers that are joined at once, and those of one more row.
_BLOCK = 1 << 20


def row_bytes(options: SamplerOptions, num_entities: int) -> int:
    """Return the bytes of one row of a cache."""
    entry = _ENTRY + (_FOLLOWED if options.nu > 0 else 0)
    return min(options.cache_size, num_entities) * entry


def row_counts(graph: KnowledgeGraph, options: SamplerOptions) -> tuple[int, int]:
    """Return how many rows the caches of heads and of tails have."""
    pairs = len(graph.rows.head), len(graph.rows.tail)
    total = sum(pairs)
    if options.sampler != "nscaching" or not options.cache_memory:
        return pairs
    most = options.cache_memory * 2**20 // (row_bytes(options, graph.num_entities) + _ROW)
    if total <= most:
        return pairs
    if most < 2 * graph.num_relations:
        needed = 2 * graph.num_relations * (row_bytes(options, graph.num_entities) + _ROW)
        raise UserError(
            f"cache_memory {options.cache_memory} holds {most:,} rows, too few for "
            f"{graph.num_relations:,} relations; allow at least {needed // 2**20 + 1} (megabytes), "
            "or make cache_size smaller."
        )
    head = max(1, most * pairs[0] // total)
    return head, most - head


def with_shared_rows(graph: KnowledgeGraph, options: SamplerOptions) -> KnowledgeGraph:
    """Return the graph as samplers see it: ``rows`` are those of the caches.

    That is the graph itself where every pair has a row of its own. Statistics stay those of the
    pairs.
    """
    counts = row_counts(graph, options)
    if counts == tuple(map(len, graph.rows)):
        return graph
    if len(graph.labelled.get(REJECTED, ())):
        raise UserError("Rejected facts need a row per pair; leave out cache_memory.")
    seen = copy.copy(graph)
    statistics = graph.statistics
    known = options.known_positives == "exclude"
    shared = (share(each, most, known) for each, most in zip(graph.rows, counts, strict=True))
    rows = TrainingRows(*shared)
    vars(seen).update(rows=rows, statistics=statistics)
    return seen


def share(pairs: PairRows, most: int, known: bool = True) -> PairRows:
    """Return ``most`` rows at most: half of them, or fewer, for the pairs with most triples.

    Without ``known`` positives, which take most of the time, no row has any.
    """
    counts = np.diff(pairs.offsets)
    if len(counts) <= most:
        return pairs
    with_more = len(counts) - np.cumsum(np.bincount(counts))  # pairs with more than so many triples
    own = counts > np.flatnonzero(with_more <= most // 2)[0]
    frequent, rare = np.flatnonzero(own), np.flatnonzero(~own)
    left = most - len(frequent)
    row = np.empty(len(counts), dtype=np.int32)
    row[frequent] = np.arange(len(frequent))
    row[rare] = len(frequent) + np.arange(len(rare)) * left // len(rare)
    order = np.concatenate([frequent, rare])  # by row
    first = np.flatnonzero(np.diff(row[order], prepend=-1))
    sizes, answers = [], []
    bounds = _bounds(first, counts[order]) if known else []
    if not known:
        sizes, answers = [np.zeros(len(first), dtype=np.int64)], [pairs.answers[:0]]
    for start, stop in pairwise(bounds):
        some = order[start:stop]
        pair, at = ranges(pairs.offsets[some], counts[some])
        keys = sorted_distinct((row[some][pair].astype(np.int64) << 32) + pairs.answers[at])
        sizes.append(np.bincount((keys >> 32) - row[some[0]]))
        answers.append((keys & 0xFFFFFFFF).astype(np.int32))
    return PairRows(
        of_triple=row[pairs.of_triple],
        anchor=pairs.anchor[order[first]],
        relation=pairs.relation[order[first]],
        offsets=np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64),
        answers=np.concatenate(answers),
    )


def _bounds(first: Integers, counts: Integers) -> list[int]:
    """Return where blocks of whole rows begin and end; each has about ``_BLOCK`` answers.

    Rows begin at ``first`` among the pairs, which have so many answers each.
    """
    before = np.cumsum(counts) - counts
    begins = np.searchsorted(before[first], np.arange(0, int(counts.sum()), _BLOCK))
    begins = np.unique(begins[begins < len(first)])
    return [*first[begins].tolist(), len(counts)]
