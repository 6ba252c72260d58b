"""How often a triple gets a negative that it had a few epochs ago.

Each triple remembers the negatives of its last ``window`` epochs. On a large graph only a fixed,
seeded subset of the triples does, so that memory and time stay bounded.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Comparisons an epoch may take; more triples than that allows are not all followed.
MOST_COMPARISONS = 4_000_000
_NOTHING = -1


def followed_triples(num_triples: int, negatives: int, window: int) -> int:
    """Return how many triples can be followed."""
    return min(num_triples, max(1, MOST_COMPARISONS // (window * negatives**2)))


class RepeatWindow:
    """The recent negatives of the triples that are followed."""

    def __init__(
        self, num_triples: int, negatives: int, window: int, seed: int, device: torch.device
    ) -> None:
        self.negatives, self.window = negatives, window
        count = followed_triples(num_triples, negatives, window)
        self.all = count == num_triples
        self.place = torch.arange(num_triples, device=device)  #: of a triple, or -1
        if not self.all:
            chosen = torch.randperm(num_triples, generator=torch.Generator().manual_seed(seed))
            self.place.fill_(_NOTHING)
            self.place[chosen[:count].to(device)] = torch.arange(count, device=device)
        settings = {"dtype": torch.int32, "device": device}
        self.past = torch.full((count, window * negatives), _NOTHING, **settings)  # type: ignore[call-overload]
        # One row more than is followed takes what is to be forgotten: no device has to be asked
        # how many draws there are of that kind.
        self.now = torch.full((count + 1, negatives), _NOTHING, **settings)  # type: ignore[call-overload]
        self._last = torch.full((count + 1,), _NOTHING, dtype=torch.int64, device=device)

    @property
    def followed(self) -> int:
        """Number of triples that are followed."""
        return len(self.past)

    def count(self, triples: Tensor, keys: Tensor, exists: Tensor, first: int) -> Tensor:
        """Remember draws; return how many are looked at and how many of those repeat. Shape: (2,).

        ``keys`` (m, k) name negatives, ``first`` is the place of the first draw in its epoch. A
        triple that is drawn twice in an epoch keeps the later negatives.
        """
        place, forgotten = self.place[triples], self.followed
        if not self.all:
            here = place >= 0
            exists = exists & here.unsqueeze(1)
            place = torch.where(here, place, forgotten)
        keys = keys.int()
        past = self.past[place.clamp_max(forgotten - 1)].unsqueeze(1)
        again = (past == keys.unsqueeze(2)).any(2) & exists
        order = torch.arange(first, first + len(place), device=place.device)
        self._last.scatter_reduce_(0, place, order, "amax")
        latest = self._last[place] == order
        kept = torch.where(latest, place, forgotten)
        self.now[kept] = keys.masked_fill(~exists, _NOTHING)
        return torch.stack([exists.sum(), again.sum()])

    def end_epoch(self, epoch: int) -> None:
        """Let the negatives of an epoch become past; the oldest are forgotten."""
        column = epoch % self.window * self.negatives
        self.past[:, column : column + self.negatives] = self.now[:-1]
        self.now.fill_(_NOTHING)
        self._last.fill_(_NOTHING)

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold."""
        return {"past": self.past, "now": self.now, "last": self._last}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        for name, mine in self.state().items():
            mine.copy_(state[name])
