"""Which entities make a training triple true: a set a pair, looked up by the thousand."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nscaching.graph import PairRows


class KnownAnswers:
    """The training answers of every row of one side, as one sorted list of (row, entity) keys."""

    def __init__(self, pairs: PairRows, num_entities: int, device: torch.device) -> None:
        rows = np.repeat(np.arange(len(pairs.anchor), dtype=np.int64), np.diff(pairs.offsets))
        self.keys = torch.from_numpy(rows * num_entities + pairs.answers).to(device)
        self.num_entities = num_entities
        #: The same by row, for kernels: answers ascending between two offsets.
        self.offsets = torch.from_numpy(pairs.offsets).to(device)
        self.answers = torch.from_numpy(pairs.answers).to(device)
        self.longest = int(np.diff(pairs.offsets).max(initial=0))

    def contains(self, rows: Tensor, entities: Tensor) -> Tensor:
        """Tell which entities are known answers of their row. Shapes: (b,), (b, k) -> (b, k)."""
        keys = rows.long().unsqueeze(1) * self.num_entities + entities
        place = torch.searchsorted(self.keys, keys).clamp_max_(len(self.keys) - 1)
        return self.keys[place] == keys
