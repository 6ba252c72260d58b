"""Where the negatives of a window come from. The window's own nodes are never among them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from nscaching.kernels.hashing import new_seed
from nscaching.nodes.config import NodeConfig
from nscaching.nodes.graph import NodeGraph
from nscaching.nodes.plain import kernel
from nscaching.nodes.walks import Noise, Windows
from nscaching.sampling.cache import Cache
from nscaching.sampling.known import KnownPositives

if TYPE_CHECKING:
    from nscaching.nodes.training import SkipGram

#: The noise is frequency to this power (Mikolov et al.).
POWER = 0.75
#: Draws from a cache row for one negative: some fall into the window.
_SPARE = 3


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
