"""The cache: N1 entities per row with the score each had when it was put there (as float16).

It knows nothing of scoring functions or relations: the knowledge-graph sampler keeps one for the
(r, t) pairs and one for the (h, r) pairs, the skip-gram sampler one for the nodes. A row is a set:
its entities are distinct. Where there are fewer than N1, the row is padded at its end with -1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from nscaching.kernels.hashing import (
    hashed_bits,
    hashed_entities,
    hashed_gumbel,
    new_seed,
    to_entities,
)
from nscaching.kernels.registry import GPU, compiled_for, kernel
from nscaching.sampling.known import KnownPositives
from nscaching.sampling.softmax import LARGEST_SCORE, draw_at, keep_without_replacement

#: (ids of any shape (b, k), -1 for padding) -> scores of the same shape, -inf for padding
Score = Callable[[Tensor], Tensor]
PADDING = -1
#: How scores become log weights, in the kernels.
UNIFORM, RAW, QUANTILE, HARDEST = 0, 1, 2, 3
#: Widest row the GPU kernels hold in registers; wider ones take the plain form.
GPU_WIDTH = 256
#: A fresh row is offered this many draws more than it has places; if that leaves it short, this
#: many times as many.
_FILL_SLACK, _FILL_WIDTH = 16, 8
#: Entries handled at once while the cache is filled or scored anew.
_FILL_BLOCK = 1 << 22


class Cache:
    """``rows`` sets of at most ``size`` entities out of ``num_entities``, with scores."""

    #: The tensors that a checkpoint must hold.
    parts: ClassVar[tuple[str, ...]] = ("ids", "scores")
    #: Whether compiled kernels may update rows; what they do not know of, a subclass does itself.
    has_kernels: ClassVar[bool] = True

    def __init__(
        self, rows: int, size: int, num_entities: int, rescaling: str, device: torch.device
    ) -> None:
        self.size = min(size, num_entities)
        self.num_entities = num_entities
        #: Where rows are in equal parts of which each draws from entities of its own, how many each
        #: part has, (parts,); none has more than ``num_entities``.
        self.sizes: Tensor | None = None
        self.rescaling = rescaling
        self.ids = torch.full((rows, self.size), PADDING, dtype=torch.int32, device=device)
        self.scores = torch.zeros(rows, self.size, dtype=torch.float16, device=device)
        #: On a GPU, which place of the batch updates a row that stands in it several times.
        owned = rows if device.type != "cpu" or compiled_for(device) == GPU else 0
        self.owner = torch.zeros(owned, dtype=torch.int32, device=device)
        #: Returns the places of a batch at which a row stands for the first time, (b,) -> (m,).
        self.first_places = FirstPlaces(rows if device.type == "cpu" else 0)

    def __len__(self) -> int:
        return self.ids.shape[0]

    def fill(
        self, forbidden: Callable[[Tensor, Tensor], Tensor] | None, generator: torch.Generator
    ) -> None:
        """Fill every row with uniform distinct entities that are not forbidden; scores stay 0.

        ``forbidden(rows, ids)`` tells which ids may not enter their row: (b,), (b, k) -> (b, k).
        Rows that a first offer leaves short get a wider one, and in the end all entities: few rows
        come to that, those whose known positives are most of what there is. Uniform draws have no
        order, so the first that may enter are as good as any.
        """
        rows = torch.arange(len(self), device=self.ids.device)
        wide = self.size + _FILL_SLACK
        widths = (self.size + 2, wide, _FILL_WIDTH * wide)
        for width in (*widths, self.num_entities):
            for part in torch.split(rows, max(1, _FILL_BLOCK // width)):
                seed = new_seed(generator)
                offered = self.fresh(part, width, seed)
                if width >= self.num_entities:  # all of them, in order
                    noise = hashed_gumbel(seed, part, self.num_entities)
                    offered = offered.gather(1, noise.argsort(1))
                valid = ~repeats(offered)
                if forbidden is not None:
                    valid &= ~forbidden(part, offered)
                place = valid.cumsum(1).sub_(1).masked_fill_(~valid, self.size)
                held = self.ids.new_full((len(part), self.size + 1), PADDING)
                held.scatter_(1, place.clamp_max_(self.size), offered.int())
                self.ids[part] = held[:, :-1]
            rows = rows[self.ids[rows, -1] == PADDING]

    def fresh(self, rows: Tensor, count: int, seed: Tensor) -> Tensor:
        """Return ``count`` uniform entities per row; all, each once, where ``count`` covers all."""
        return fresh_entities(rows, count, self.num_entities, seed)

    def rescore(self, score: Callable[[Tensor, Tensor], Tensor], block_rows: int = 4096) -> None:
        """Store current scores for all rows. ``score(rows, ids)``: (b,), (b, k) -> (b, k)."""
        block_rows = max(1, min(block_rows, _FILL_BLOCK // self.size))
        for start in range(0, len(self), block_rows):
            rows = torch.arange(start, min(start + block_rows, len(self)), device=self.ids.device)
            ids = self.ids[rows].long()
            self.scores[rows] = _half(score(rows, ids).masked_fill(ids == PADDING, 0))

    def sample_at(self, uniform: Tensor, rows: Tensor, alpha: float) -> Tensor:
        """Draw entities from rows by their stored scores, with sigma2 (eq-samp-neg).

        ``uniform`` has a number in [0, 1) per draw; an empty row gives -1.
        Shapes: (b, k), (b,) -> (b, k).
        """
        ids = self.ids[rows]
        valid = ids != PADDING
        if alpha == 0:  # padding is at the end: any of the first ones, evenly
            held = valid.sum(1, keepdim=True)
            place = (uniform * held).long().minimum(held - 1).clamp_min(0)
        else:
            place = draw_at(uniform, self.drawing_scores(rows), valid, alpha, self.rescaling)
        return ids.gather(1, place).long()

    def drawing_scores(self, rows: Tensor) -> Tensor:
        """Return the scores by which negatives are drawn from rows. Shapes: (b,) -> (b, N1)."""
        return self.scores[rows].float()

    def update(
        self,
        rows: Tensor,
        count: int,
        known: KnownPositives | None,
        score: Score,
        alpha: float,
        seed: Tensor,
    ) -> None:
        """Update rows (alg-cache-update): offer fresh entities, score, keep N1 with sigma3.

        ``count`` fresh entities per row that are no known positives. The seed and the row decide
        what is offered and the noise: a row that stands twice is updated once. Shape: (b,).
        """
        fused = self.has_kernels and self.size + count <= GPU_WIDTH
        offered = (offer if fused else offer.plain)(rows, self, count, seed, known)
        owned = fused and compiled_for(rows.device) == GPU
        self.keep(rows, offered, score(offered), alpha, seed, owned=owned)

    def keep(
        self,
        rows: Tensor,
        candidates: Tensor,
        scores: Tensor,
        alpha: float,
        seed: Tensor,
        *,
        owned: bool = False,
    ) -> None:
        """Keep N1 of the candidates of each row, with sigma3 (eq:prupc); -1 may not enter.

        On a GPU places of the batch write at once: of a row that stands twice, one place counts.
        With ``owned`` it is the one that the GPU's offer chose. Elsewhere rows stand once.
        Shapes: (b,), (b, k), (b, k).
        """
        on_gpu = compiled_for(rows.device) == GPU
        fused = self.has_kernels and not (on_gpu and candidates.shape[1] > GPU_WIDTH)
        if len(self.owner):
            if not owned:
                places = torch.arange(len(rows), dtype=torch.int32, device=rows.device)
                self.owner[rows] = places  # any of them stays
            if not (fused and on_gpu):  # all places of a row write the same
                mine = self.owner[rows].long()
                candidates, scores = candidates[mine], scores[mine]
        (keep if fused else keep.plain)(rows, self, candidates, scores, alpha, seed)

    def store_scores(self, rows: Tensor, kept: Tensor, place: Tensor) -> None:
        """Store the scores of what was kept; ``place`` is where each stood among the candidates."""
        self.scores[rows] = _half(kept)

    def weighting(self, alpha: float) -> tuple[float, int]:
        """Return the temperature and the way to weight as the kernels take them."""
        if alpha == 0:
            return 0.0, UNIFORM
        if alpha == math.inf:
            return 0.0, HARDEST
        return float(alpha), QUANTILE if self.rescaling == "quantile" else RAW

    def totals(self) -> Tensor:
        """Return the sum of the stored scores of each row. Shape: (rows,)."""
        return self.scores.sum(1, dtype=torch.float32)


class VarianceCache(Cache):
    """A cache that follows how the score of each entity varies while it stays (``ssec:falseneg``).

    The paper's study of false negatives: they score high but vary little, large-gradient negatives
    vary. So negatives are drawn by ``score + nu * std``, with Welford's running variance over the
    updates that an entity has been through: the count, mean and summed squared deviation of its
    scores. It is a study, off by default, and has no kernels.
    """

    parts = (*Cache.parts, "count", "mean", "deviation")
    has_kernels = False

    def __init__(
        self,
        rows: int,
        size: int,
        num_entities: int,
        rescaling: str,
        device: torch.device,
        *,
        nu: float,
    ) -> None:
        super().__init__(rows, size, num_entities, rescaling, device)
        self.nu = nu
        self.count, self.mean, self.deviation = torch.zeros(3, rows, self.size, device=device)

    def std(self, rows: Tensor) -> Tensor:
        """Return the standard deviation of the scores seen so far. Shapes: (b,) -> (b, N1)."""
        variance: Tensor = self.deviation[rows] / self.count[rows].clamp_min(1)
        return variance.sqrt()

    def drawing_scores(self, rows: Tensor) -> Tensor:
        """Return ``score + nu * std``."""
        return super().drawing_scores(rows) + self.nu * self.std(rows)

    def store_scores(self, rows: Tensor, kept: Tensor, place: Tensor) -> None:
        """Take each entity's past along, and add its new score (Welford)."""
        count, mean, deviation = (
            self._past(part[rows], place) for part in (self.count, self.mean, self.deviation)
        )
        count = count + 1
        gap = kept - mean
        mean = mean + gap / count
        self.count[rows] = count
        self.mean[rows] = mean
        self.deviation[rows] = deviation + gap * (kept - mean)
        super().store_scores(rows, kept, place)

    def _past(self, part: Tensor, place: Tensor) -> Tensor:
        """Return what was known of the kept ones: zero for those that were not in the row."""
        known = part.gather(1, place.clamp_max(self.size - 1))
        return torch.where(place < self.size, known, 0.0)


class FirstPlaces:
    """Finds the places of a batch at which a row stands for the first time.

    Caches of the same rows may share one: it remembers the last batch.
    """

    def __init__(self, rows: int) -> None:
        self._stamps = torch.zeros(rows, dtype=torch.int64)
        self._batches = 0
        self._last: tuple[Tensor, Tensor] | None = None

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the places. Shapes: (b,) -> (m,)."""
        if self._last is None or self._last[0] is not rows:
            self._batches += 1
            self._last = rows, first_places(rows, self._stamps, self._batches)
        return self._last[1]


def fresh_entities(rows: Tensor, count: int, num_entities: int, seed: Tensor) -> Tensor:
    """Return ``count`` uniform entities per row; all, each once, where ``count`` covers all."""
    if count >= num_entities:
        return torch.arange(num_entities, device=rows.device).expand(len(rows), -1)
    return hashed_entities(seed, rows, count, num_entities)


def repeats(ids: Tensor) -> Tensor:
    """Tell which ids stood earlier in their row already. Shapes: (b, k) -> (b, k)."""
    ordered = ids.sort(dim=1, stable=True)
    again = torch.zeros_like(ids, dtype=torch.bool)
    again[:, 1:] = ordered.values[:, 1:] == ordered.values[:, :-1]
    return torch.zeros_like(again).scatter_(1, ordered.indices, again)


def _half(scores: Tensor) -> Tensor:
    """Round scores to what a row stores; those beyond its range become its largest."""
    return scores.clamp(-LARGEST_SCORE, LARGEST_SCORE).half()


# The kernels: each works on the rows of a cache --------------------------------------------------


@kernel(cpu="cache_cpu", gpu="cache_gpu")
def offer(
    rows: Tensor, cache: Cache, count: int, seed: Tensor, known: KnownPositives | None
) -> Tensor:
    """Return what rows hold, then fresh entities; -1 for known positives. Shape: (b, N1 + N2)."""
    if cache.sizes is None:
        fresh = cache.fresh(rows, count, seed)
    else:
        size = cache.sizes[rows // (len(cache) // len(cache.sizes))].unsqueeze(1)
        width = min(count, cache.num_entities)
        every = torch.arange(width, device=rows.device).expand(len(rows), -1)
        drawn = to_entities(hashed_bits(seed, rows, 0, width), size)
        fresh = torch.where(size > width, drawn, every.masked_fill(every >= size, PADDING))
    if known is not None:
        fresh = fresh.masked_fill(known.contains(rows, fresh), PADDING)
    return torch.cat([cache.ids[rows].long(), fresh], dim=1)


@kernel(cpu="keep_cpu", gpu="cache_gpu")
def keep(
    rows: Tensor, cache: Cache, candidates: Tensor, scores: Tensor, alpha: float, seed: Tensor
) -> None:
    """Write the kept candidates and their scores into rows. Shapes: (b,), (b, k), (b, k)."""
    valid = (candidates != PADDING) & ~repeats(candidates) & ~scores.isnan()
    noise = hashed_gumbel(seed, rows, candidates.shape[1])
    settings = (alpha, cache.rescaling, cache.size)
    place, exists = keep_without_replacement(scores, valid, *settings, noise)
    width = cache.size - place.shape[1]  # fewer candidates than places
    if width > 0:
        place, exists = pad(place, (0, width)), pad(exists, (0, width))
    cache.ids[rows] = candidates.gather(1, place).masked_fill_(~exists, PADDING).int()
    cache.store_scores(rows, scores.gather(1, place).masked_fill_(~exists, 0), place)


@kernel(cpu="cache_cpu")
def first_places(rows: Tensor, stamps: Tensor, number: int) -> Tensor:
    """Return where rows stand for the first time, ascending; ``stamps`` serve the CPU form."""
    distinct, inverse = torch.unique(rows, return_inverse=True)
    places = torch.arange(len(rows), device=rows.device)
    first = places.new_full((len(distinct),), len(rows))
    return first.scatter_reduce_(0, inverse, places, "amin").sort().values
