"""A cell of the node table: one method on one graph with one seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nscaching.experiments.paper.cells import Cell
from nscaching.experiments.paper.rows import Row
from nscaching.nodes import NodeGraph
from nscaching.nodes.compare import method_scores
from nscaching.nodes.tasks import SHARES
from nscaching.training import Progress


def node_row(cell: Cell, settings: Mapping[str, Any], graph: NodeGraph, progress: Progress) -> Row:
    """Train and classify; the numbers are means over five draws of labelled nodes."""
    scores, seconds = method_scores(graph, cell.sampler, cell.seed, progress=progress, **settings)
    means = scores.mean(axis=1)
    names = ("micro_f1", "macro_f1")
    f1 = {
        f"{share:.0%} {name}": float(means[at, number])
        for at, share in enumerate(SHARES)
        for number, name in enumerate(names)
    }
    return {"f1": f1, "seconds": seconds, "device": "cpu"}
