"""The options of an embedding, the skip-gram model (eq:skip:loss), its step, and the training loop.

Batch -> negatives -> cache update -> gradient step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nscaching.errors import TrainingDiverged, UserError
from nscaching.interrupt import StopRequest
from nscaching.kernels.availability import HAVE_NUMBA, cpu_kernels_are_compiled
from nscaching.kernels.threads import refuse_lost_threads
from nscaching.models.match import Query
from nscaching.models.matches import Dot
from nscaching.nodes.graph import NodeGraph
from nscaching.nodes.plain import LOSS_EVERY, kernel
from nscaching.nodes.windows import NODE_SAMPLERS, EdgeWindows, Stream, Walker, WalkWindows, Windows
from nscaching.optim import Adam, RowGradients
from nscaching.options import OptionGroup
from nscaching.sampling import CacheOptions
from nscaching.training.progress import Progress

MODELS = ("node2vec", "deepwalk", "line")
#: Graphs with more nodes than this are trained with lazy Adam unless told otherwise.
LAZY_FROM = 50_000
#: The paper's L2 penalty.
WALK_PENALTY = 1e-7
#: That of LINE, which sees the edges alone and learns them by heart with less. It falls with the
#: nodes of a larger graph, as a node's share of the mean loss does.
LINE_PENALTY, LINE_PENALTY_UP_TO = 1e-4, 3000

_data, _model, _walks = OptionGroup("Data"), OptionGroup("Model"), OptionGroup("Walks")
_sampler, _cache = OptionGroup("Sampler"), OptionGroup("NSCaching")
_training = OptionGroup("Training")


@dataclass(kw_only=True)
class NodeConfig(CacheOptions):
    """Everything that decides how an embedding of nodes turns out."""

    data: str = _data("", "A named graph (cora, citeseer) or an edge list.")
    directed: bool = _data(False, "Edges have a direction.")
    held_out: float = _data(
        0.0, "Share of the edges kept from training, for link prediction.", low=0, below=1
    )
    model: str = _model(
        "node2vec",
        "Model of a node: walks with p and q, plain walks, or edges alone.",
        choices=MODELS,
    )
    dim: int = _model(100, "Dimension d of the embedding.", low=1)
    walks_per_node: int = _walks(10, "Walks from each node.", low=1)
    walk_length: int = _walks(80, "Nodes of a walk.", low=2)
    p: float = _walks(0.25, "Return parameter: smaller p, more steps back (node2vec).", above=0)
    q: float = _walks(0.25, "In-out parameter: smaller q, more outward (node2vec).", above=0)
    window: int = _walks(10, "Nodes of a walk on each side of its centre.", low=1)
    sampler: str = _sampler(
        "nscaching",
        "Negative sampler: by frequency^0.75, from the cache, or self-paced.",
        choices=("frequency", "nscaching", "seedne"),
    )
    negatives: int = _sampler(5, "N: negatives of a pair; the pairs of a window share them.", low=1)
    fresh: str = _cache(
        "frequency",
        "Fresh nodes of a cache update: by frequency^0.75, or uniform as for knowledge graphs.",
        choices=("frequency", "uniform"),
    )
    cached_neighbours: str = _cache(
        "allow",
        "Neighbours of a node in its cache row; in a window they are never negatives anyway.",
        choices=("allow", "exclude"),
    )
    update_every: int = _cache(2, "Steps from one update of the cache to the next.", low=1)
    epochs: int = _training(2, "Passes over all walks.", low=1)
    batch_size: int = _training(2048, "Windows per step.", low=1)
    lr: float = _training(1e-3, "Learning rate of Adam.", above=0)
    weight_decay: float | None = _training(
        None,
        f"L2 penalty; default {WALK_PENALTY:g}, and for line {LINE_PENALTY:g} (less on graphs of "
        f"more than {LINE_PENALTY_UP_TO:,} nodes).",
        low=0,
    )
    optimizer: str = _training(
        "auto",
        "adam updates every row in each step, lazy-adam those with a gradient; auto is lazy-adam "
        f"for more than {LAZY_FROM:,} nodes.",
        choices=("auto", "adam", "lazy-adam"),
    )
    seed: int = _training(
        0, "Seed of the walks, the parameters and the sampling.", low=0, high=2**32 - 1
    )

    def penalty(self, nodes: int) -> float:
        """Return the L2 penalty on a graph with so many nodes."""
        if self.weight_decay is not None:
            return self.weight_decay
        if self.model != "line":
            return WALK_PENALTY
        return LINE_PENALTY * min(1.0, LINE_PENALTY_UP_TO / nodes)


class SkipGram:
    """A vector u for each node as a centre and a vector v as a context; the score is u.v.

    With ``tied`` there is one table for both, as in LINE's first order.
    """

    def __init__(
        self, nodes: int, dim: int, generator: torch.Generator, *, tied: bool = False
    ) -> None:
        self.node = (torch.rand(nodes, dim, generator=generator) - 0.5) / dim
        self.context = self.node
        if not tied:
            self.context = (torch.rand(nodes, dim, generator=generator) - 0.5) / dim

    def score(self, rows: Tensor, candidates: Tensor) -> Tensor:
        """Return u.v for each row's candidates. Shapes: (b,), (b, k) -> (b, k)."""
        return Dot().forward(Query(self.node[rows]), self.context, candidates)


class SkipGramStep:
    """Takes gradient steps on a model with Adam."""

    def __init__(self, model: SkipGram, lr: float, weight_decay: float, *, lazy: bool) -> None:
        self.model = model
        tables = {"node": model.node}
        if model.context is not model.node:
            tables["context"] = model.context
        self.adam = Adam(tables, lr, weight_decay, lazy=lazy)

    def __call__(self, windows: Windows) -> float:
        """Move the tables by the mean loss of the pairs, and return about what it is."""
        count, dim = len(windows.centres), self.model.node.shape[1]
        node, context = self.model.node.numpy(), self.model.context.numpy()
        centre_gradient = np.empty((count, dim), dtype=np.float32)
        looked_at = windows.pairs[::LOSS_EVERY]
        losses = np.empty(len(looked_at), dtype=np.float32)
        given = (windows.centres, windows.targets, windows.weights, windows.pairs, windows.width)
        scale = 1.0 / max(float(windows.pairs.sum()), 1.0)
        kernel("window_gradients")(node, context, *given, scale, centre_gradient, losses)
        centres, targets, slopes = map(
            torch.from_numpy, (windows.centres, windows.targets, windows.weights)
        )
        one = RowGradients(centres, torch.from_numpy(centre_gradient))
        # Adam adds the rows of a target up as it moves it; the centres are those before the step.
        two = RowGradients(targets.reshape(-1).long(), self.model.node[centres], slopes)
        tied = self.model.context is self.model.node
        self.adam.step({"node": [one, two]} if tied else {"node": [one], "context": [two]})
        return float(losses.sum(dtype=np.float64) / max(looked_at.sum(), 1.0))


@dataclass
class Trained:
    """The tables a training gives, and how it went."""

    vectors: np.ndarray  #: shape: (nodes, dim)
    context: np.ndarray | None  #: context vectors of a skip-gram model; shape: (nodes, dim)
    losses: list[float]  #: mean loss of a pair, one per epoch
    seconds: float
    stopped: int | None = None  #: the signal that ended the training early


def make_walker(graph: NodeGraph, config: NodeConfig) -> Walker:
    """Return the walks a configuration asks for; DeepWalk's are those with p = q = 1."""
    p, q = (1.0, 1.0) if config.model == "deepwalk" else (config.p, config.q)
    count, length = config.walks_per_node, config.walk_length
    return Walker(graph, walks_per_node=count, length=length, p=p, q=q, seed=config.seed)


def train_nodes(graph: NodeGraph, config: NodeConfig, progress: Progress) -> Trained:
    """Train the model a configuration describes."""
    if len(graph.neighbours) == 0:
        raise UserError(f"{graph.name} has no edge between two nodes; there is nothing to learn.")
    refuse_lost_threads()
    walker = make_walker(graph, config)
    generator = torch.Generator().manual_seed(config.seed)
    orders = [(config.dim, False)]
    if config.model == "line":
        if config.dim < 2:
            raise UserError("LINE puts two embeddings side by side: choose a dim of at least 2.")
        orders = [(config.dim // 2, True), (config.dim - config.dim // 2, False)]
    if HAVE_NUMBA and not cpu_kernels_are_compiled("skipgram_cpu.window_gradients"):
        progress.say("Compiling kernels for this machine, once: about half a minute.")
    models, losses, started = [], [], time.perf_counter()
    with StopRequest() as stop, progress.training(config.epochs * len(orders)) as bar:
        for dim, tied in orders:
            stream: Stream
            if config.model == "line":
                draws = walker.count * walker.length
                stream = EdgeWindows(graph, config.negatives, config.batch_size, draws)
            else:
                stream = WalkWindows(walker, config.window, config.negatives, config.batch_size)
            model = SkipGram(len(graph), dim, generator, tied=tied)
            models.append(model)
            for loss in _epochs(stream, model, graph, config, generator, stop, bar):
                losses.append(loss)
                bar.epoch_done(len(losses), loss)
    tables = [model.node.numpy() for model in models]
    if config.model == "line":
        tables = [_unit_rows(table) for table in tables]
    vectors = np.concatenate(tables, axis=1) if len(tables) > 1 else tables[0]
    context = None if config.model == "line" else models[0].context.numpy()
    seconds = time.perf_counter() - started
    return Trained(vectors, context, losses, seconds, stop.signal)


def _epochs(
    stream: Stream,
    model: SkipGram,
    graph: NodeGraph,
    config: NodeConfig,
    generator: torch.Generator,
    stop: StopRequest,
    bar: Progress.Bar,
) -> Iterator[float]:
    """Train one model, and yield the mean loss of each epoch."""
    sampler = NODE_SAMPLERS[config.sampler](graph, stream.frequencies(), config)
    sampler.prepare(model, generator)
    lazy = config.optimizer == "lazy-adam" or (
        config.optimizer == "auto" and len(graph) > LAZY_FROM
    )
    step = SkipGramStep(model, config.lr, config.penalty(len(graph)), lazy=lazy)
    for epoch in range(config.epochs):
        total = 0.0
        for at, windows in enumerate(stream.epoch(generator)):
            if stop.signal is not None:
                return
            share = (epoch + at / stream.steps) / config.epochs
            sampler.sample(windows, model, share, generator)
            sampler.update(windows, model, generator)
            total += step(windows)
            bar.within_epoch((at + 1) / stream.steps)
        loss = total / max(1, stream.steps)
        if not math.isfinite(loss):
            raise TrainingDiverged(
                f"The loss was {loss} in epoch {epoch + 1}; try a smaller lr than {config.lr}."
            )
        yield loss


def _unit_rows(table: np.ndarray) -> np.ndarray:
    """Return rows of length 1, as LINE does before it puts its two orders side by side."""
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table / np.maximum(lengths, 1e-12), dtype=np.float32)
