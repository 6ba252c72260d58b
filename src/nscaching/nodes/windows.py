"""What a step learns from: windows of walks, or edges for LINE, and their negatives.

Walks are made when they are needed and never kept as a whole. The window's own nodes are never
among its negatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from nscaching.graph.names import Floats, Ids, Longs
from nscaching.kernels.hashing import new_seed, unsigned
from nscaching.nodes.graph import NodeGraph
from nscaching.nodes.plain import kernel
from nscaching.sampling.cache import Cache
from nscaching.sampling.known import KnownPositives

if TYPE_CHECKING:
    from nscaching.nodes.training import NodeConfig, SkipGram

#: Nodes of walks made at once when all walks are gone through.
_BLOCK = 1 << 22
#: The noise is frequency to this power (Mikolov et al.).
POWER = 0.75
#: Draws from a cache row for one negative: some fall into the window.
_SPARE = 3


class Walker:
    """The numbered walks of a graph: ``walks_per_node`` from every node.

    The same graph, seed and number give the same walk, so models are compared on the same walks
    by giving them the same seed.
    """

    def __init__(
        self,
        graph: NodeGraph,
        *,
        walks_per_node: int = 10,
        length: int = 80,
        p: float = 1.0,
        q: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.graph, self.length, self.p, self.q, self.seed = graph, length, p, q, seed
        self.count = walks_per_node * len(graph)
        self._cumulative = np.zeros(0)
        if graph.weights is not None:
            self._cumulative = np.concatenate([[0.0], np.cumsum(graph.weights, dtype=np.float64)])

    def walk(self, numbers: Longs) -> Ids:
        """Return the walks of some numbers, -1 after their end. Shape: (b, length)."""
        nodes = np.empty((len(numbers), self.length), dtype=np.int32)
        graph = self.graph
        rows = (graph.offsets, graph.neighbours, self._cumulative, graph.directed)
        kernel("walk")(*rows, numbers, self.p, self.q, np.uint64(self.seed), nodes)
        return nodes

    def blocks(self) -> Iterator[Ids]:
        """Yield all walks, a block at a time."""
        size = max(1, _BLOCK // self.length)
        for start in range(0, self.count, size):
            numbers = np.arange(start, min(start + size, self.count), dtype=np.int64)
            yield self.walk(numbers)

    def frequencies(self) -> Longs:
        """Return how often each node stands in all walks. Shape: (nodes,)."""
        counts = np.zeros(len(self.graph), dtype=np.int64)
        for block in self.blocks():
            counts += np.bincount(block[block >= 0], minlength=len(counts))
        return counts


@dataclass(frozen=True)
class Windows:
    """Centres with what stands around them; the last places of a row are for negatives.

    The first ``width`` places of a row hold distinct nodes and, in ``weights``, how often each
    stands in the window; -1 where there is none.
    """

    centres: Longs  #: shape: (m,)
    pairs: npt.NDArray[np.float32]  #: how many contexts a window has, repeats counted; shape: (m,)
    targets: Ids  #: shape: (m, width + negatives)
    weights: npt.NDArray[np.float32]  #: shape: (m, width + negatives)
    width: int

    @property
    def around(self) -> tuple[Any, ...]:
        """What a negative must not be among: centres, targets and their width."""
        return self.centres, self.targets, self.width

    @property
    def negatives(self) -> Ids:
        """The places for negatives; shape: (m, negatives)."""
        return self.targets[:, self.width :]


class Noise:
    """A distribution over the nodes, as an alias table: one draw reads one entry."""

    def __init__(self, weights: Floats) -> None:
        total = weights.sum()
        scaled = weights * (len(weights) / total) if total > 0 else np.ones(len(weights))
        threshold = scaled.astype(np.float64)
        self.alias = np.arange(len(scaled), dtype=np.int32)
        kernel("fill_alias")(threshold, self.alias)
        self.threshold = threshold.astype(np.float32)

    def draw(self, windows: Windows, out: Ids, generator: torch.Generator) -> None:
        """Draw nodes outside each window. Shape of ``out``: (m, k)."""
        seed = unsigned(new_seed(generator))
        kernel("draw_noise")(*windows.around, self.threshold, self.alias, seed, out)

    def candidates(
        self, rows: torch.Tensor, count: int, known: KnownPositives, seed: torch.Tensor
    ) -> Longs:
        """Draw candidates for cache rows, -1 for known positives. Shape: (b, count)."""
        drawn = np.empty((len(rows), count), dtype=np.int64)
        arrays = (each.numpy() for each in (rows, known.offsets, known.answers))
        kernel("draw_candidates")(*arrays, self.threshold, self.alias, unsigned(seed), drawn)
        return drawn

    def draw_plain(self, count: int, generator: torch.Generator) -> Longs:
        """Draw without regard to windows. Shape: (count,)."""
        place = torch.randint(len(self.alias), (count,), generator=generator).numpy()
        height = torch.rand(count, generator=generator).numpy()
        return np.where(height < self.threshold[place], place, self.alias[place])


class WalkWindows:
    """The windows of all walks: walks in random order, some of them per step."""

    def __init__(self, walker: Walker, window: int, negatives: int, batch_size: int) -> None:
        self.walker, self.window, self.negatives = walker, window, negatives
        self.walks_per_step = max(1, batch_size // walker.length)
        self.steps = -(-walker.count // self.walks_per_step)

    def epoch(self, generator: torch.Generator) -> Iterator[Windows]:
        """Yield the windows of all walks."""
        order = torch.randperm(self.walker.count, generator=generator).numpy()
        for start in range(0, len(order), self.walks_per_step):
            yield self.windows(self.walker.walk(order[start : start + self.walks_per_step]))

    def windows(self, walks: Ids) -> Windows:
        """Return the windows of some walks; a walk of one node has none."""
        lengths = (walks >= 0).sum(1)
        lengths[lengths < 2] = 0
        starts = np.concatenate([[0], np.cumsum(lengths)])
        shape = (int(starts[-1]), 2 * self.window + self.negatives)
        centres, pairs = np.empty(shape[0], dtype=np.int64), np.empty(shape[0], dtype=np.float32)
        targets, weights = np.empty(shape, dtype=np.int32), np.empty(shape, dtype=np.float32)
        kernel("windows")(walks, starts, self.window, centres, pairs, targets, weights)
        return Windows(centres, pairs, targets, weights, 2 * self.window)

    def frequencies(self) -> Longs:
        """Return how often each node stands in the walks."""
        return self.walker.frequencies()


class EdgeWindows:
    """LINE: edges as windows of one context, drawn by weight; an epoch draws ``count`` of them.

    First order: both ends share one table. Second order: an end and the other's context vector
    (Tang et al., 2015).
    """

    def __init__(self, graph: NodeGraph, negatives: int, batch_size: int, count: int) -> None:
        self.negatives, self.batch_size = negatives, batch_size
        self.steps = -(-count // batch_size) if len(graph.neighbours) else 0
        self._arcs = graph.arcs()
        self._graph = graph
        weights = graph.weights
        self._noise = None if weights is None else Noise(weights.astype(np.float64))

    def epoch(self, generator: torch.Generator) -> Iterator[Windows]:
        """Yield batches of edges, drawn with replacement."""
        for _ in range(self.steps):
            if self._noise is None:
                size = (self.batch_size,)
                drawn = torch.randint(len(self._arcs), size, generator=generator).numpy()
            else:
                drawn = self._noise.draw_plain(self.batch_size, generator)
            arcs = self._arcs[drawn]
            shape = (len(arcs), 1 + self.negatives)
            targets = np.full(shape, -1, dtype=np.int32)
            targets[:, 0] = arcs[:, 1]
            weights = np.ones(shape, dtype=np.float32)
            pairs = np.ones(len(arcs), dtype=np.float32)
            yield Windows(np.ascontiguousarray(arcs[:, 0]), pairs, targets, weights, 1)

    def frequencies(self) -> Floats:
        """Return the weight of the edges that end in each node. Shape: (nodes,)."""
        weights = self._graph.weights
        return np.bincount(self._graph.neighbours, weights, len(self._graph)).astype(np.float64)


#: A source of windows that goes through all it has once per epoch.
Stream = WalkWindows | EdgeWindows


class NodeSampler:
    """Base of the samplers: it fills the places for negatives of a batch of windows."""

    name: ClassVar[str]

    def __init__(self, graph: NodeGraph, frequencies: npt.NDArray[Any], config: NodeConfig) -> None:
        self.config = config
        self.noise = Noise(frequencies**POWER)

    def prepare(self, model: SkipGram, generator: torch.Generator) -> None:
        """Do what is to be done once, before the first step."""

    def sample(
        self, windows: Windows, model: SkipGram, share: float, generator: torch.Generator
    ) -> None:
        """Write negatives into the windows; ``share`` of the training is done."""
        raise NotImplementedError

    def update(self, windows: Windows, model: SkipGram, generator: torch.Generator) -> None:
        """Update what is kept for these centres."""


class FrequencySampler(NodeSampler):
    """Node2vec's own: noise by frequency^0.75."""

    name = "frequency"

    def sample(
        self, windows: Windows, model: SkipGram, share: float, generator: torch.Generator
    ) -> None:
        """Draw from the noise."""
        self.noise.draw(windows, windows.negatives, generator)


class CacheSampler(NodeSampler):
    """NSCaching: one cache row for each node, the same cache as for knowledge graphs."""

    name = "nscaching"

    def __init__(self, graph: NodeGraph, frequencies: npt.NDArray[Any], config: NodeConfig) -> None:
        super().__init__(graph, frequencies, config)
        cpu = torch.device("cpu")
        self.cache = Cache(len(graph), config.cache_size, len(graph), config.rescale, cpu)
        without = config.cached_neighbours == "exclude"
        self.known = KnownPositives(NoNegatives(graph, neighbours=without), len(graph), cpu)
        self._step = 0

    def prepare(self, model: SkipGram, generator: torch.Generator) -> None:
        """Fill the rows with uniform nodes."""
        self.cache.fill(self.known.contains, generator)
        if self.config.alpha2 > 0:
            self.cache.rescore(model.score)

    def sample(
        self, windows: Windows, model: SkipGram, share: float, generator: torch.Generator
    ) -> None:
        """Draw from the centre's row with sigma2, passing over what is in the window."""
        rows = torch.from_numpy(windows.centres)
        count = _SPARE * self.config.negatives
        uniform = torch.rand(len(rows), count, generator=generator)
        drawn = self.cache.sample_at(uniform, rows, self.config.alpha2)
        given = (drawn.clamp_min(0).numpy(), (drawn >= 0).numpy())
        kernel("take_outside")(*windows.around, *given, windows.negatives)

    def update(self, windows: Windows, model: SkipGram, generator: torch.Generator) -> None:
        """Offer each centre's row fresh nodes and keep N1 with sigma3."""
        seed = new_seed(generator)
        self._step += 1
        if self._step % self.config.update_every:
            return
        rows = torch.unique(torch.from_numpy(windows.centres))
        count, score = self.config.candidates, partial(model.score, rows)
        if self.config.fresh == "uniform":
            self.cache.update(rows, count, self.known, score, self.config.alpha3, seed)
            return
        fresh = torch.from_numpy(self.noise.candidates(rows, count, self.known, seed))
        offered = torch.cat([self.cache.ids[rows].long(), fresh], dim=1)
        self.cache.keep(rows, offered, score(offered), self.config.alpha3, seed)


class SelfPacedSampler(NodeSampler):
    """SeedNE with self-embedding: noise whose similarity u.v is above a rising threshold.

    Each window is offered some nodes of the noise. At the beginning any of them may be a negative;
    the threshold then rises evenly, until at the end the N most similar ones are taken.
    """

    name = "seedne"
    #: Nodes of the noise offered for one negative.
    OFFERED = 4

    def sample(
        self, windows: Windows, model: SkipGram, share: float, generator: torch.Generator
    ) -> None:
        """Draw from what is offered and above the threshold."""
        wanted = self.config.negatives
        offered = np.empty((len(windows.centres), self.OFFERED * wanted), dtype=np.int32)
        self.noise.draw(windows, offered, generator)
        nodes = torch.from_numpy(offered).long()
        scores = model.score(torch.from_numpy(windows.centres), nodes.clamp_min(0))
        scores.masked_fill_(nodes < 0, -torch.inf)
        eligible = round((1 - share) * nodes.shape[1] + share * wanted)
        nearest = scores.topk(eligible, dim=1, sorted=False).indices
        chosen = torch.rand(nearest.shape, generator=generator).topk(wanted, dim=1).indices
        windows.negatives[:] = nodes.gather(1, nearest.gather(1, chosen)).numpy()


class NoNegatives:
    """What may not enter a node's cache row: the node itself and, on request, its neighbours."""

    def __init__(self, graph: NodeGraph, *, neighbours: bool) -> None:
        size = len(graph)
        own = np.arange(size, dtype=np.int64)
        keys = own * size + own
        if neighbours:
            arcs = graph.arcs()
            keys = np.sort(np.concatenate([keys, arcs[:, 0] * size + arcs[:, 1]]))
        self.offsets = np.zeros(size + 1, dtype=np.int64)
        np.cumsum(np.bincount(keys // size, minlength=size), out=self.offsets[1:])
        self.answers = (keys % size).astype(np.int32)


NODE_SAMPLERS: dict[str, Callable[..., NodeSampler]] = {
    sampler.name: sampler for sampler in (FrequencySampler, CacheSampler, SelfPacedSampler)
}
