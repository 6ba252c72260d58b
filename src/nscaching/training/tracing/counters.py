"""What the negatives of an epoch were worth: drawn, with a loss, repeated, facts after all.

A negative that is a triple of valid or test is a false negative, and known to be one to us, not to
the training. A negative that is a training triple is a known positive; a sampler may keep those
out. Both are counted apart.

A step only copies what it drew into a buffer, which costs next to nothing and can be part of a CUDA
graph. The counting is plain torch, for many steps at once, between two steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph
from nscaching.models import Side
from nscaching.sampling.cache import Cache
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.training.tracing.gradients import score_gradients

if TYPE_CHECKING:
    from nscaching.training.config import TrainConfig

#: Most losses are never zero: from this loss on a negative counts as one that teaches. For the
#: logistic loss it is that of a negative held for true with a probability of one in a hundred.
LEAST_LOSS = 0.01
#: The gradient of such a negative's score, which is asked for since every loss has it.
_LEAST_GRADIENT = 1 - math.exp(-LEAST_LOSS)
#: Of more negatives per question than this so many are counted, evenly spaced.
MOST_COUNTED = 16
#: Negatives in the buffer before they are counted.
_BUFFER = 1 << 18
#: Comparisons per epoch; more questions than that allows are not all followed.
MOST_COMPARISONS = 1_000_000
_NOTHING = -1
#: What a replacement is where it is a fact: a training triple, or a triple of valid or test.
KNOWN, HELD_OUT = 1, 2
#: Entries of the cache compared at once.
_ENTRIES = 1 << 20
#: What is counted, in the order of the tensor that holds it.
COUNTED = ("drawn", "with_loss", "followed", "repeated", "known", "held_out")


class NegativeCounters:
    """The counters of one epoch, and the repeat window that outlasts it."""

    def __init__(
        self, graph: KnowledgeGraph, config: TrainConfig, loss: Any, columns: Tensor
    ) -> None:
        self.config, self.columns, self.loss = config, columns, loss
        self.facts = Facts(graph, columns.device)
        self.num_entities, self.num_triples = graph.num_entities, len(graph.train)
        self.batch_size = config.batch(self.num_triples)
        self.window: RepeatWindow | None = None  # made with the first negatives
        device = columns.device
        self.counts = torch.zeros(len(COUNTED), dtype=torch.int64, device=device)
        self._order = torch.empty(0, dtype=torch.int64, device=device)
        self._counted = self._written = 0  # places of the epoch, known without asking the device
        self._sides = 1  #: questions per triple
        self._make_buffer(0, 0, 0, 0)

    def _make_buffer(self, steps: int, per_step: int, k: int, values: int) -> None:
        device, rows = self.columns.device, steps * per_step
        self._ids = torch.zeros(rows, k, dtype=torch.int64, device=device)
        self._replaces_head = torch.zeros(rows, k, dtype=torch.bool, device=device)
        self._values = torch.zeros(rows, values, device=device)
        self._first = torch.arange(per_step, device=device)
        self._places = self._first.clone()  #: of the coming step; the device moves it on

    def begin_epoch(self, order: Tensor, first_step: int) -> None:
        """Take the order of an epoch's triples; steps before ``first_step`` are counted already."""
        self._order = order
        self._counted = self._written = first_step * self.batch_size
        self._places.copy_(self._first)

    # Within a step -------------------------------------------------------------------------------

    def write(self, ids: Tensor, replaces_head: Tensor, scores: Tensor) -> None:
        """Keep what a step drew. Shapes: (q, k) with -1 as padding, (q,), (q, 1 + k).

        A step has one question per triple, or two: those for the heads, then those for the tails.
        """
        k = ids.shape[1]
        if k == 0:  # every entity is a candidate, so there is nothing that was drawn
            return
        if k > MOST_COUNTED:
            columns = torch.arange(MOST_COUNTED, device=ids.device) * k // MOST_COUNTED
            scores = score_gradients(self.loss, scores)[:, 1 + columns]  # those of the counted
            ids = ids[:, columns]
        rows, k = ids.shape
        if (self._ids.shape[1], self._values.shape[1]) != (k, scores.shape[1]):
            self._follow(rows, k, scores.shape[1])
        places = self._places[:rows]
        self._ids.index_copy_(0, places, ids)
        self._replaces_head.index_copy_(0, places, replaces_head.unsqueeze(1).expand_as(ids))
        self._values.index_copy_(0, places, scores)
        self._places += rows

    def _follow(self, rows: int, k: int, values: int) -> None:
        """Make room for k negatives per question, in the first step or after a change."""
        triples = min(self.batch_size, len(self._order) - self._written)
        self._sides = max(1, rows // max(1, triples))
        per_step = self.batch_size * self._sides
        self._make_buffer(max(1, _BUFFER // (per_step * k)), per_step, k, values)
        if self.window is None or self.window.shape != (self._sides * self.num_triples, k):
            self.window = self._make_window(self._sides * self.num_triples, k)

    def _make_window(self, questions: int, negatives: int) -> RepeatWindow:
        epochs, seed = self.config.trace_window, self.config.seed
        return RepeatWindow(questions, negatives, epochs, seed, self.columns.device)

    # Between two steps ---------------------------------------------------------------------------

    def after_step(self) -> None:
        """Count what is in the buffer, once it is full."""
        self._written = min(self._written + self.batch_size, len(self._order))
        room = len(self._ids) // self._sides
        if self._written - self._counted + self.batch_size > room:
            self.count()

    def count(self) -> None:
        """Count what is in the buffer."""
        triples = self._order[self._counted : self._written]
        first, self._counted = self._counted * self._sides, self._written
        if len(triples) == 0 or self.window is None or len(self._ids) == 0:
            return
        if self._sides > 1:
            triples = torch.cat([part.repeat(2) for part in torch.split(triples, self.batch_size)])
        size = len(triples)
        ids, heads, values = (
            part[:size] for part in (self._ids, self._replaces_head, self._values)
        )
        exists = ids >= 0
        if values.shape[1] > ids.shape[1]:
            values = score_gradients(self.loss, values)[:, 1:]
        questions = triples + self.num_triples * heads[:, 0] if self._sides > 1 else triples
        keys = ids + heads * self.num_entities
        counts = [exists.sum(), ((values > _LEAST_GRADIENT) & exists).sum()]
        counts += list(self.window.count(questions, keys, exists, first))
        counts += list(self.facts.count(self.columns, triples, ids, heads))
        self.counts += torch.stack(counts)
        self._places.copy_(self._first)

    def end_epoch(self, epoch: int) -> None:
        """Begin the counts of the next epoch, once those of this one are read."""
        self.counts.zero_()
        if self.window is not None:
            self.window.end_epoch(epoch)

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold; everything is counted first."""
        self.count()
        kept = {"counts": self.counts}
        if self.window is not None:
            kept |= {f"window.{name}": part for name, part in self.window.state().items()}
        return kept

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        self.counts.copy_(state["counts"])
        if "window.now" in state:
            questions = int(state.get("window.questions", torch.tensor(self.num_triples)))
            self.window = self._make_window(questions, state["window.now"].shape[1])
            self.window.load_state(
                {name[7:]: part for name, part in state.items() if name.startswith("window.")}
            )


def followed_triples(questions: int, negatives: int, window: int) -> int:
    """Return how many questions can be followed."""
    return min(questions, max(1, MOST_COMPARISONS // (window * negatives**2)))


class RepeatWindow:
    """The recent negatives of the questions that are followed.

    Each question (a training triple, or one side of it) remembers the negatives of its last
    ``window`` epochs. On a large graph only a fixed, seeded subset does, so that memory and time
    stay bounded.
    """

    def __init__(
        self, questions: int, negatives: int, window: int, seed: int, device: torch.device
    ) -> None:
        self.shape, self.window = (questions, negatives), window
        count = followed_triples(questions, negatives, window)
        self.all = count == questions
        self.place = torch.arange(questions, device=device)  #: of a question, or -1
        if not self.all:
            chosen = torch.randperm(questions, generator=torch.Generator().manual_seed(seed))
            self.place.fill_(_NOTHING)
            self.place[chosen[:count].to(device)] = torch.arange(count, device=device)
        past, now = (count, window * negatives), (count, negatives)
        self.past = torch.full(past, _NOTHING, dtype=torch.int32, device=device)
        self.now = torch.full(now, _NOTHING, dtype=torch.int32, device=device)
        self._last = torch.full((count,), _NOTHING, dtype=torch.int64, device=device)

    def count(self, questions: Tensor, keys: Tensor, exists: Tensor, first: int) -> Tensor:
        """Remember draws; return how many are looked at and how many of those repeat. Shape: (2,).

        ``keys`` (m, k) name negatives, ``first`` is the place of the first draw in its epoch. A
        question that is drawn twice in an epoch keeps the later negatives.
        """
        order = torch.arange(first, first + len(questions), device=keys.device)
        place = self.place[questions]
        if not self.all:
            here = (place >= 0).nonzero().squeeze(1)
            place, order, keys, exists = (each[here] for each in (place, order, keys, exists))
        keys = keys.int()
        again = (self.past[place].unsqueeze(1) == keys.unsqueeze(2)).any(2) & exists
        self._last.scatter_reduce_(0, place, order, "amax")
        latest = (self._last[place] == order).nonzero().squeeze(1)
        self.now[place[latest]] = keys.masked_fill(~exists, _NOTHING)[latest]
        return torch.stack([exists.sum(), again.sum()])

    def end_epoch(self, epoch: int) -> None:
        """Let the negatives of an epoch become past; the oldest are forgotten."""
        negatives = self.shape[1]
        column = epoch % self.window * negatives
        self.past[:, column : column + negatives] = self.now
        self.now.fill_(_NOTHING)
        self._last.fill_(_NOTHING)

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold."""
        questions = torch.tensor(self.shape[0])
        return {"past": self.past, "now": self.now, "last": self._last, "questions": questions}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        for name, mine in (("past", self.past), ("now", self.now), ("last", self._last)):
            mine.copy_(state[name])


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
    block = max(1, _ENTRIES // cache.size)
    found = torch.zeros((), dtype=torch.int64, device=cache.ids.device)
    for row, answer in zip(torch.split(rows, block), torch.split(answers, block), strict=True):
        found += (cache.ids[row] == answer.unsqueeze(1)).sum()
    return found
