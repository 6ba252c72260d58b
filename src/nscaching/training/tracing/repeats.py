"""How often a question gets a negative that it had a few epochs ago.

Each question (a training triple, or one side of it) remembers the negatives of its last ``window``
epochs. On a large graph only a fixed, seeded subset does, so that memory and time stay bounded.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Comparisons per epoch; more questions than that allows are not all followed.
MOST_COMPARISONS = 1_000_000
_NOTHING = -1


def followed_triples(questions: int, negatives: int, window: int) -> int:
    """Return how many questions can be followed."""
    return min(questions, max(1, MOST_COMPARISONS // (window * negatives**2)))


class RepeatWindow:
    """The recent negatives of the questions that are followed."""

    def __init__(
        self, questions: int, negatives: int, window: int, seed: int, device: torch.device
    ) -> None:
        self.shape, self.window = (questions, negatives), window
        count = followed_triples(questions, negatives, window)
        self.all = count == questions
        self.place = torch.arange(questions, device=device)  #: of a question, or -1
        if not self.all:
            chosen = torch.randperm(questions, generator=torch.Generator().manual_seed(seed))
            self.place.fill_(_NOTHING)
            self.place[chosen[:count].to(device)] = torch.arange(count, device=device)
        past, now = (count, window * negatives), (count, negatives)
        self.past = torch.full(past, _NOTHING, dtype=torch.int32, device=device)
        self.now = torch.full(now, _NOTHING, dtype=torch.int32, device=device)
        self._last = torch.full((count,), _NOTHING, dtype=torch.int64, device=device)

    @property
    def followed(self) -> int:
        """Number of questions that are followed."""
        return len(self.past)

    def count(self, questions: Tensor, keys: Tensor, exists: Tensor, first: int) -> Tensor:
        """Remember draws; return how many are looked at and how many of those repeat. Shape: (2,).

        ``keys`` (m, k) name negatives, ``first`` is the place of the first draw in its epoch. A
        question that is drawn twice in an epoch keeps the later negatives.
        """
        order = torch.arange(first, first + len(questions), device=keys.device)
        place = self.place[questions]
        if not self.all:
            here = (place >= 0).nonzero().squeeze(1)
            place, order, keys, exists = (each[here] for each in (place, order, keys, exists))
        keys = keys.int()
        again = (self.past[place].unsqueeze(1) == keys.unsqueeze(2)).any(2) & exists
        self._last.scatter_reduce_(0, place, order, "amax")
        latest = (self._last[place] == order).nonzero().squeeze(1)
        self.now[place[latest]] = keys.masked_fill(~exists, _NOTHING)[latest]
        return torch.stack([exists.sum(), again.sum()])

    def end_epoch(self, epoch: int) -> None:
        """Let the negatives of an epoch become past; the oldest are forgotten."""
        negatives = self.shape[1]
        column = epoch % self.window * negatives
        self.past[:, column : column + negatives] = self.now
        self.now.fill_(_NOTHING)
        self._last.fill_(_NOTHING)

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold."""
        questions = torch.tensor(self.shape[0])
        return {"past": self.past, "now": self.now, "last": self._last, "questions": questions}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` returned."""
        for name, mine in (("past", self.past), ("now", self.now), ("last", self._last)):
            mine.copy_(state[name])
