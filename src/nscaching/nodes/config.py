"""The configuration of a node embedding: file, Python and command line are the same thing."""

from __future__ import annotations

from dataclasses import dataclass

from nscaching.options import option
from nscaching.sampling import CacheOptions

MODELS = ("node2vec", "deepwalk", "line")
#: Graphs with more nodes than this are trained with lazy Adam unless told otherwise.
LAZY_FROM = 50_000
#: The paper's L2 penalty.
WALK_PENALTY = 1e-7
#: That of LINE, which sees the edges alone and learns them by heart with less. It falls with the
#: nodes of a larger graph, as a node's share of the mean loss does.
LINE_PENALTY, LINE_PENALTY_UP_TO = 1e-4, 3000


@dataclass(kw_only=True)
class NodeConfig(CacheOptions):
    """Everything that decides how an embedding of nodes turns out."""

    data: str = option("", "A named graph (cora, citeseer) or an edge list.", group="Data")
    directed: bool = option(False, "Edges have a direction.", group="Data")
    held_out: float = option(
        0.0,
        "Share of the edges kept from training, for link prediction.",
        group="Data",
        low=0,
        below=1,
    )
    model: str = option(
        "node2vec",
        "Model of a node: walks with p and q, plain walks, or edges alone.",
        group="Model",
        choices=MODELS,
    )
    dim: int = option(100, "Dimension d of the embedding.", group="Model", low=1)
    walks_per_node: int = option(10, "Walks from each node.", group="Walks", low=1)
    walk_length: int = option(80, "Nodes of a walk.", group="Walks", low=2)
    p: float = option(
        0.25, "Small: a walk likes to go back (node2vec only).", group="Walks", above=0
    )
    q: float = option(
        0.25, "Small: a walk likes to go outward (node2vec only).", group="Walks", above=0
    )
    window: int = option(10, "Nodes of a walk on each side of its centre.", group="Walks", low=1)
    sampler: str = option(
        "nscaching",
        "Negative sampler: by frequency^0.75, from the cache, or self-paced.",
        group="Sampler",
        choices=("frequency", "nscaching", "seedne"),
    )
    negatives: int = option(
        5, "N: negatives of a pair; the pairs of a window share them.", group="Sampler", low=1
    )
    fresh: str = option(
        "frequency",
        "Fresh nodes of a cache update: by frequency^0.75, or uniform as for knowledge graphs.",
        group="NSCaching",
        choices=("frequency", "uniform"),
    )
    cached_neighbours: str = option(
        "allow",
        "Neighbours of a node in its cache row; in a window they are never negatives anyway.",
        group="NSCaching",
        choices=("allow", "exclude"),
    )
    update_every: int = option(
        2, "Steps from one update of the cache to the next.", group="NSCaching", low=1
    )
    epochs: int = option(2, "Passes over all walks.", group="Training", low=1)
    batch_size: int = option(2048, "Windows per step.", group="Training", low=1)
    lr: float = option(1e-3, "Learning rate of Adam.", group="Training", above=0)
    weight_decay: float | None = option(
        None,
        f"L2 penalty; default {WALK_PENALTY:g}, and for line {LINE_PENALTY:g} (less on graphs of "
        f"more than {LINE_PENALTY_UP_TO:,} nodes).",
        group="Training",
        low=0,
    )
    optimizer: str = option(
        "auto",
        "adam updates every row in each step, lazy-adam those with a gradient; auto is lazy-adam "
        f"for more than {LAZY_FROM:,} nodes.",
        group="Training",
        choices=("auto", "adam", "lazy-adam"),
    )
    seed: int = option(
        0,
        "Seed of the walks, the parameters and the sampling.",
        group="Training",
        low=0,
        high=2**32 - 1,
    )

    def penalty(self, nodes: int) -> float:
        """Return the L2 penalty on a graph with so many nodes."""
        if self.weight_decay is not None:
            return self.weight_decay
        if self.model != "line":
            return WALK_PENALTY
        return LINE_PENALTY * min(1.0, LINE_PENALTY_UP_TO / nodes)
