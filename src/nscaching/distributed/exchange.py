"""What processes tell each other: rows, sums in a fixed order, and what all of them agree on.

Sums are taken pairwise, neighbours first. Where the numbers of strata and of processes are powers
of two, every number of processes adds up in the same order and gets the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor


def pairwise_sum(parts: Sequence[Tensor]) -> Tensor:
    """Add tensors of one shape: neighbours, then neighbouring sums."""
    level = list(parts)
    while len(level) > 1:
        left = [a + b for a, b in zip(level[::2], level[1::2], strict=False)]
        level = left + level[len(level) - len(level) % 2 :]
    return level[0]


class Exchange:
    """One process: everything is here already."""

    rank = 0
    world_size = 1

    def __init__(self) -> None:
        self.bytes_sent = 0  #: of rows and sums, to other processes
        self.seconds = 0.0  #: spent on it, waiting for others included

    def swap(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Send the first ``sent[0]`` rows to process 0, and so on; return what came, in order."""
        return rows

    def gather(self, part: Tensor) -> Tensor:
        """Return a tensor of every process, joined along the first dimension in their order."""
        return part

    def agree(self, value: float) -> float:
        """Return the largest value that a process has."""
        return value

    def total(self, value: float) -> float:
        """Return the sum of the values of all processes."""
        return value

    def sum(self, part: Tensor) -> Tensor:
        """Return the sum over all processes. Shape: (m, width)."""
        if self.world_size == 1:
            return part
        cuts = [len(part) * rank // self.world_size for rank in range(self.world_size + 1)]
        sizes = [stop - start for start, stop in pairwise(cuts)]
        mine = sizes[self.rank]
        pieces = self.swap(part, sizes, [mine] * self.world_size)
        summed = pairwise_sum(pieces.view(self.world_size, mine, part.shape[1]).unbind(0))
        everything = summed.repeat(self.world_size, 1)
        return self.swap(everything, [mine] * self.world_size, sizes)


class ProcessExchange(Exchange):
    """The processes of the default group of ``torch.distributed``."""

    def __init__(self) -> None:
        super().__init__()
        self.rank = torch.distributed.get_rank()
        self.world_size = torch.distributed.get_world_size()
        backends = torch.distributed.get_backend_config()
        #: gloo takes tensors in host memory, NCCL those of a GPU.
        self._by_host, self._by_gpu = "nccl" not in backends, "gloo" not in backends

    def swap(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Send the first ``sent[0]`` rows to process 0, and so on; return what came, in order."""
        began = time.perf_counter()
        given = rows.contiguous()
        given = given.cpu() if self._by_host else given
        found = given.new_empty(sum(received), *rows.shape[1:])
        torch.distributed.all_to_all_single(found, given, received, sent)
        width = rows.element_size() * (rows[0].numel() if len(rows) else 0)
        self.bytes_sent += width * (sum(sent) - sent[self.rank])
        found = found.to(rows.device)
        self.seconds += time.perf_counter() - began
        return found

    def gather(self, part: Tensor) -> Tensor:
        """Return a tensor of every process, joined along the first dimension in their order."""
        sizes = [len(part)] * self.world_size
        return self.swap(part.repeat(self.world_size, *[1] * (part.dim() - 1)), sizes, sizes)

    def agree(self, value: float) -> float:
        """Return the largest value that a process has."""
        return float(self._all(value).max())

    def total(self, value: float) -> float:
        """Return the sum of the values of all processes."""
        return float(self._all(value).sum())

    def _all(self, value: float) -> Tensor:
        device = "cuda" if self._by_gpu else "cpu"
        part = torch.tensor([value], dtype=torch.float64, device=device)
        parts = [torch.empty_like(part) for _ in range(self.world_size)]
        torch.distributed.all_gather(parts, part)
        return torch.cat(parts)


def current_exchange() -> Exchange:
    """Return that of the process group that was joined, or of this process alone."""
    joined = torch.distributed.is_available() and torch.distributed.is_initialized()
    return ProcessExchange() if joined else Exchange()
