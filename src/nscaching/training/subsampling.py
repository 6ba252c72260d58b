"""Subsampling (Mikolov et al. 2013; for triples Sun et al. 2019, RotatE): common facts count less.

The loss of a fact (h, r, t) is weighted by ``1 / sqrt(#(h, r) + #(r, t))``, where # counts training
facts and begins at 3, as in RotatE's code. The weights of all facts have a mean of 1.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nscaching.graph import KnowledgeGraph

#: Where a count begins, so that pairs of one fact do not outweigh all others.
_FIRST = 3


def fact_weights(graph: KnowledgeGraph) -> Tensor:
    """Return the weight of each training fact. Shape: (n,), float32."""
    counts = np.full(len(graph.train), 2.0 * _FIRST)
    for side in graph.rows:
        counts += np.diff(side.offsets)[side.of_triple]
    weights = 1 / np.sqrt(counts)
    return torch.from_numpy((weights / weights.mean()).astype(np.float32))
