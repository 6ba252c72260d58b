"""Which entities are no negatives of a row (they make a training triple true): a set a row."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Answers(Protocol):
    """Lists of entities, one a row: ``PairRows`` of a knowledge graph, or neighbours of nodes."""

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Row i owns ``answers[offsets[i]:offsets[i + 1]]``."""

    @property
    def answers(self) -> npt.NDArray[np.int32]:
        """Ascending within a row."""


class KnownAnswers:
    """The known answers of every row of one side, as one sorted list of (row, entity) keys."""

    def __init__(self, known: Answers, num_entities: int, device: torch.device) -> None:
        rows = np.repeat(np.arange(len(known.offsets) - 1, dtype=np.int64), np.diff(known.offsets))
        self.keys = torch.from_numpy(rows * num_entities + known.answers).to(device)
        self.num_entities = num_entities
        #: The same by row, for kernels: answers ascending between two offsets.
        self.offsets = torch.from_numpy(known.offsets).to(device)
        self.answers = torch.from_numpy(known.answers).to(device)
        self.longest = int(np.diff(known.offsets).max(initial=0))

    def contains(self, rows: Tensor, entities: Tensor) -> Tensor:
        """Tell which entities are known answers of their row. Shapes: (b,), (b, k) -> (b, k)."""
        keys = rows.long().unsqueeze(1) * self.num_entities + entities
        place = torch.searchsorted(self.keys, keys).clamp_max_(len(self.keys) - 1)
        return self.keys[place] == keys
