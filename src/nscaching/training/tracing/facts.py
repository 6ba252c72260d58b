"""How many negatives are facts after all: of the training triples, or held out.

A negative that is a triple of valid or test is a false negative, and known to be one to us, not to
the training. A negative that is a training triple is a known positive; a sampler may keep those
out. Both are counted apart.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph, PairRows
from nscaching.kernels.cuda_graphs import Replayed
from nscaching.models import Side
from nscaching.sampling import Batch
from nscaching.sampling.cache import PADDING, Cache
from nscaching.sampling.nscaching import NSCachingSampler

#: What a replacement is: no fact, a training triple, a triple of valid or test.
NO_FACT, KNOWN, HELD_OUT = 0, 1, 2
#: Entries of the cache compared at once.
_BLOCK = 1 << 20


class SideFacts(NamedTuple):
    """The facts that complete the rows of one side, one entry a fact, sorted by row."""

    rows: Tensor
    answers: Tensor


class Facts:
    """All facts that a replacement in a training triple can make."""

    def __init__(self, graph: KnowledgeGraph, device: torch.device) -> None:
        self.num_entities = graph.num_entities
        pairs = {Side.HEAD: graph.rows.head, Side.TAIL: graph.rows.tail}
        self.first_tail = len(graph.rows.head)  #: head pairs are numbered first, then tail pairs
        held_out = np.concatenate([graph.valid, graph.test]).astype(np.int64)
        self.of_side: dict[tuple[int, Side], SideFacts] = {}
        keys, kinds = [], []
        for side, rows in pairs.items():
            known = _training_keys(rows, graph.num_entities)
            false = _held_out_keys(rows, side, held_out, graph.num_entities)
            false = np.setdiff1d(false, known)
            for kind, found in ((KNOWN, known), (HELD_OUT, false)):
                rows_and_answers = np.divmod(found, graph.num_entities)
                self.of_side[kind, side] = SideFacts(
                    *(torch.from_numpy(part).to(device) for part in rows_and_answers)
                )
                first = 0 if side is Side.HEAD else self.first_tail
                keys.append(found + first * graph.num_entities)
                kinds.append(np.full(len(found), kind, dtype=np.int8))
        joined = np.concatenate(keys)
        order = np.argsort(joined, kind="stable")
        joined = joined[order]
        self._keys = torch.from_numpy(joined).to(device)
        self._kinds = torch.from_numpy(np.concatenate(kinds)[order]).to(device)
        self._in_cache = torch.zeros(3, dtype=torch.int64, device=device)
        self._replayed: tuple[NSCachingSampler, Replayed] | None = None
        #: The same by pair for the loop on the CPU: offsets, answers and their kinds.
        self.by_pair: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        if device.type == "cpu":
            numbers = np.arange(self.first_tail + len(graph.rows.tail) + 1)
            offsets = np.searchsorted(joined, numbers * graph.num_entities)
            answers = (joined % graph.num_entities).astype(np.int32)
            self.by_pair = offsets, answers, self._kinds.numpy()

    def kinds(self, batch: Batch, entities: Tensor, replaces_head: Tensor) -> Tensor:
        """Tell what each replacement makes of its triple. Shapes: (m, k) twice -> (m, k), int8."""
        head_rows = batch.head_rows.unsqueeze(1)
        tail_rows = batch.tail_rows.unsqueeze(1) + self.first_tail
        rows = torch.where(replaces_head, head_rows, tail_rows)
        keys = rows * self.num_entities + entities
        place = torch.searchsorted(self._keys, keys).clamp_max_(len(self._keys) - 1)
        return torch.where(self._keys[place] == keys, self._kinds[place], NO_FACT)

    def in_cache(self, sampler: NSCachingSampler) -> Tensor:
        """Count entries of both caches: all, training triples, held out. Shape: (3,), int64.

        Each fact is looked for in its row, which is far less than looking at each entry.
        """
        if self._keys.device.type != "cuda":
            return self._count_in(sampler)
        if self._replayed is None or self._replayed[0] is not sampler:
            self._replayed = sampler, Replayed(partial(self._count_into_place, sampler))
        self._replayed[1]()
        return self._in_cache

    def _count_into_place(self, sampler: NSCachingSampler) -> None:
        self._in_cache.copy_(self._count_in(sampler))

    def _count_in(self, sampler: NSCachingSampler) -> Tensor:
        total = sum((cache.ids != PADDING).sum() for cache in sampler.caches.values())
        counts = [torch.as_tensor(total, device=self._keys.device)]
        for kind in (KNOWN, HELD_OUT):
            found = torch.zeros_like(counts[0])
            for side, cache in sampler.caches.items():
                if kind != KNOWN or sampler.known is None:  # else they are kept out
                    found = found + _found(cache, self.of_side[kind, side])
            counts.append(found)
        return torch.stack(counts)


def _found(cache: Cache, facts: SideFacts) -> Tensor:
    """Count the facts whose answer stands in its row."""
    block = max(1, _BLOCK // cache.size)
    found = torch.zeros((), dtype=torch.int64, device=cache.ids.device)
    for rows, answers in zip(*(torch.split(part, block) for part in facts), strict=True):
        found += (cache.ids[rows] == answers.unsqueeze(1)).sum()
    return found


def _training_keys(pairs: PairRows, num_entities: int) -> np.ndarray:
    rows = np.repeat(np.arange(len(pairs), dtype=np.int64), np.diff(pairs.offsets))
    return rows * num_entities + pairs.answers


def _held_out_keys(
    pairs: PairRows, side: Side, triples: np.ndarray, num_entities: int
) -> np.ndarray:
    """Return (row, answer) of the triples whose pair has a row; no other can be sampled."""
    anchor, answer = (2, 0) if side is Side.HEAD else (0, 2)
    numbered = pairs.relation.astype(np.int64) * num_entities + pairs.anchor
    wanted = triples[:, 1] * num_entities + triples[:, anchor]
    place = np.searchsorted(numbered, wanted).clip(max=len(numbered) - 1)
    there = numbered[place] == wanted
    keys: np.ndarray = place[there] * num_entities + triples[there, answer]
    return keys
