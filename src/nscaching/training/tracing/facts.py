"""How many negatives are facts after all: of the training triples, or held out.

A negative that is a triple of valid or test is a false negative, and known to be one to us, not to
the training. A negative that is a training triple is a known positive; a sampler may keep those
out. Both are counted apart.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph
from nscaching.models import Side
from nscaching.sampling.cache import Cache
from nscaching.sampling.nscaching import NSCachingSampler

#: What a replacement is where it is a fact: a training triple, or a triple of valid or test.
KNOWN, HELD_OUT = 1, 2
#: Entries of the cache compared at once.
_BLOCK = 1 << 20


class Facts:
    """All facts that a replacement in a training triple can make, by row and answer."""

    def __init__(self, graph: KnowledgeGraph, device: torch.device) -> None:
        self.num_entities = graph.num_entities
        self._first_tail = len(graph.rows.head)  # head pairs are numbered first, then tail pairs
        held_out = np.concatenate([graph.valid, graph.test]).astype(np.int64)
        #: Rows and answers by kind and side, sorted by row.
        self._of_side: dict[tuple[int, Side], tuple[Tensor, Tensor]] = {}
        keys, kinds = [], []
        for side in Side:
            pairs = graph.rows[side]
            rows = np.repeat(np.arange(len(pairs), dtype=np.int64), np.diff(pairs.offsets))
            known = rows * graph.num_entities + pairs.answers
            of_fact = pairs.find(held_out[:, side.other.column], held_out[:, 1])
            there = of_fact >= 0  # no other can be sampled
            false = of_fact[there] * graph.num_entities + held_out[there, side.column]
            false = np.setdiff1d(false, known)
            for kind, found in ((KNOWN, known), (HELD_OUT, false)):
                parts = np.divmod(found, graph.num_entities)
                row, answer = (torch.from_numpy(part).to(device) for part in parts)
                self._of_side[kind, side] = row, answer
                first = 0 if side is Side.HEAD else self._first_tail
                keys.append(found + first * graph.num_entities)
                kinds.append(np.full(len(found), kind, dtype=np.int8))
        joined = np.concatenate(keys)
        order = np.argsort(joined, kind="stable")
        self._keys = torch.from_numpy(joined[order]).to(device)
        self._kinds = torch.from_numpy(np.concatenate(kinds)[order]).to(device)
        #: Which last bits of a key some fact has.
        self._mask = (1 << min(24, (8 * len(joined)).bit_length())) - 1
        self._maybe = torch.zeros(self._mask + 1, dtype=torch.bool, device=device)
        self._maybe[self._keys & self._mask] = True

    def count(self, columns: Tensor, triples: Tensor, ids: Tensor, replaces_head: Tensor) -> Tensor:
        """Count replacements that are known positives, and that are held out. Shape: (2,).

        Shapes: columns (5, n), triples (m,), ids and replaces_head (m, k); an id of -1 is none.
        """
        head_rows, tail_rows = columns[3:].index_select(1, triples).long()
        tail_rows = tail_rows + self._first_tail
        rows = torch.where(replaces_head, head_rows.unsqueeze(1), tail_rows.unsqueeze(1))
        keys = torch.where(ids >= 0, rows * self.num_entities + ids, -1)
        keys = keys[self._maybe[keys & self._mask]]  # most are no facts, and that is cheap to see
        place = torch.searchsorted(self._keys, keys).clamp_max_(len(self._keys) - 1)
        kinds = torch.where(self._keys[place] == keys, self._kinds[place], 0)
        return torch.stack([(kinds == kind).sum() for kind in (KNOWN, HELD_OUT)])

    def in_cache(self, sampler: NSCachingSampler) -> Tensor:
        """Count entries of both caches: all, known positives, held out. Shape: (3,), int64.

        Each fact is looked for in its row, which is far less than looking at each entry.
        """
        counts = torch.zeros(3, dtype=torch.int64, device=self._keys.device)
        for side, cache in sampler.caches.items():
            counts[0] += (cache.ids >= 0).sum()
            for kind in (KNOWN, HELD_OUT):
                if kind != KNOWN or sampler.known is None:  # else they are excluded
                    counts[kind] += _found(cache, *self._of_side[kind, side])
        return counts


def _found(cache: Cache, rows: Tensor, answers: Tensor) -> Tensor:
    """Count the facts whose answer stands in its row. Shapes: (f,), (f,)."""
    block = max(1, _BLOCK // cache.size)
    found = torch.zeros((), dtype=torch.int64, device=cache.ids.device)
    for row, answer in zip(torch.split(rows, block), torch.split(answers, block), strict=True):
        found += (cache.ids[row] == answer.unsqueeze(1)).sum()
    return found
