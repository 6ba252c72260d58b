"""Both caches updated for a batch in one pass, where candidates are scored from an int8 copy."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nscaching.kernels.hashing import unsigned
from nscaching.models import BatchQueries, Int8Table, Side
from nscaching.sampling.cache import Cache
from nscaching.sampling.known import KnownPositives


class Int8Update:
    """Updates the rows of a batch, each once; the result is that of ``Cache.update`` per side."""

    def __init__(
        self, caches: dict[Side, Cache], known: dict[Side, KnownPositives] | None, candidates: int
    ) -> None:
        self.caches = caches
        nothing = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int32)
        lists = {
            side: (known[side].offsets, known[side].answers) if known else nothing for side in Side
        }
        self._offsets, self._answers = (
            tuple(lists[side][part].numpy() for side in Side) for part in (0, 1)
        )
        entities = caches[Side.HEAD].num_entities
        self.candidates = min(candidates, entities)
        #: Where the entities of each part of the rows begin in the table, and how many there are.
        self.parts = np.array([[0, entities]])

    def __call__(
        self,
        rows: dict[Side, tuple[Tensor, Tensor]],
        queries: BatchQueries,
        table: Int8Table,
        alpha: float,
        seeds: dict[Side, Tensor],
    ) -> None:
        """Offer each row of the batch fresh entities, and keep N1 of them and of what it holds.

        ``rows`` (b,) are those of the batch, with the places where one stands for the first time.
        """
        from nscaching.kernels.int8_cache_cpu import update_from_int8

        head, tail = Side.HEAD, Side.TAIL  # written out: a step has no time to iterate over them
        heads, tails = self.caches[head], self.caches[tail]
        (head_rows, head_places), (tail_rows, tail_places) = rows[head], rows[tail]
        of_heads, of_tails = queries.vectors()
        update_from_int8(
            (head_places.numpy(), tail_places.numpy()),
            (head_rows.numpy(), tail_rows.numpy()),
            (of_heads.numpy(), of_tails.numpy()),
            (heads.ids.numpy(), tails.ids.numpy()),
            (heads.scores.numpy().view(np.uint16), tails.scores.numpy().view(np.uint16)),
            self._offsets,
            self._answers,
            np.array([unsigned(seeds[head]), unsigned(seeds[tail])]),
            table.values.numpy(),
            table.scale.numpy(),
            self.parts,
            self.candidates,
            *heads.weighting(alpha),
        )
