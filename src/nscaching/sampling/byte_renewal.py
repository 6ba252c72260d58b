"""Both caches renewed for a batch in one pass, where candidates are scored from bytes on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching.models import ByteTables, Side
from nscaching.sampling.base import Batch
from nscaching.sampling.cache import Cache
from nscaching.sampling.hashing import unsigned
from nscaching.sampling.known import KnownAnswers


class ByteRenewal:
    """Renews the rows of a batch, each once; the result is that of ``Cache.renew`` side by side."""

    def __init__(
        self, caches: dict[Side, Cache], known: dict[Side, KnownAnswers] | None, candidates: int
    ) -> None:
        self.caches = caches
        nothing = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int32)
        lists = {
            side: (known[side].offsets, known[side].answers) if known else nothing for side in Side
        }
        self._offsets, self._answers = (
            tuple(lists[side][part].numpy() for side in Side) for part in (0, 1)
        )
        self.candidates = min(candidates, caches[Side.HEAD].num_entities)
        self._stamps = {side: np.zeros(len(caches[side]), dtype=np.int64) for side in Side}
        self._batches = 0

    def __call__(
        self, batch: Batch, tables: ByteTables, alpha: float, seeds: dict[Side, Tensor]
    ) -> None:
        """Offer each row of the batch fresh entities, and keep N1 of them and of what it holds."""
        from nscaching.sampling import byte_kernels

        self._batches += 1
        rows = tuple(batch.rows(side).numpy() for side in Side)
        kernel: Any = byte_kernels.renew_from_bytes
        kernel(
            tuple(self._distinct(side, rows[side]) for side in Side),
            rows,
            tuple(batch.anchor(side).numpy() for side in Side),
            batch.relations.numpy(),
            tuple(self.caches[side].ids.numpy() for side in Side),
            tuple(self.caches[side].scores.numpy().view(np.uint16) for side in Side),
            self._offsets,
            self._answers,
            np.array([unsigned(seeds[side]) for side in Side]),
            *(table.numpy() for table in tables.tensors),
            tables.kind,
            self.candidates,
            *self.caches[Side.HEAD].weighting(alpha),
        )

    def _distinct(self, side: Side, rows: np.ndarray) -> np.ndarray:
        """Return where in the batch a row stands for the first time."""
        from nscaching.sampling import byte_kernels

        places = np.empty(len(rows), dtype=np.int64)
        kernel: Any = byte_kernels.first_places
        return places[: kernel(rows, self._stamps[side], self._batches, places)]
