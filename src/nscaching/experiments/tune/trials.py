"""Trials and their log: what the optimiser proposed and what came of it, in the order it came.

``trials.jsonl`` is only ever added to, and it is the truth: an optimiser that is asked and told the
same things in the same order, from the same seed, stands where the old one stood. Replaying the log
is therefore all that resuming a search needs, with any number of workers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nscaching.experiments.runner import TrialLog
from nscaching.experiments.tune.space import Position

SUCCESS, FAILED, RUNNING = "success", "failed", "running"


@dataclass(frozen=True)
class Proposal:
    """What the optimiser wants to know: how good a configuration is after so many epochs."""

    trial: int  #: counted from 1; a configuration has one number, whatever its epochs
    positions: dict[str, Position]
    epochs: int
    budget: float | None = None  #: epochs as the optimiser counts them, not always whole

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from other proposals."""
        return self.trial, self.epochs


@dataclass(frozen=True)
class TrialResult:
    """How training a trial up to some epochs went."""

    status: str
    score: float | None = None  #: the best on valid so far, by the metric of the search
    best_epoch: int = 0
    epochs: int = 0  #: epochs the run has in all
    anew: bool = True  #: trained from the start, not from a checkpoint
    seconds: float = 0.0  #: spent for this result
    error: str | None = None
    fatal: bool = False  #: a user's mistake, which would spoil every trial

    @property
    def cost(self) -> float:
        """What the optimiser minimises: 1 - score, and 1 for a failure."""
        return 1.0 - self.score if self.score is not None else 1.0


#: A proposal, or a proposal with its result.
Event = tuple[Proposal, TrialResult | None]


@dataclass
class Trial:
    """One configuration of the space and how far it has come."""

    number: int
    config: dict[str, Any]
    positions: dict[str, Position]
    run: str
    status: str = RUNNING
    asked_epochs: int = 0  #: the most it was given; ``epochs`` is fewer after early stopping
    score: float | None = None  #: by the metric of the search, the best on valid
    best_epoch: int = 0
    epochs: int = 0
    seconds: float = 0.0
    error: str | None = None

    def add(self, proposal: Proposal, result: TrialResult) -> int:
        """Take one more result in; return the epochs that were trained for it."""
        trained = result.epochs if result.anew else max(0, result.epochs - self.epochs)
        self.asked_epochs = max(self.asked_epochs, proposal.epochs)
        self.status, self.error = result.status, result.error
        self.seconds += result.seconds
        self.epochs = max(self.epochs, result.epochs)
        if result.score is not None and (self.score is None or result.score > self.score):
            self.score, self.best_epoch = result.score, result.best_epoch
        return trained

    def as_dict(self, metric: str) -> dict[str, Any]:
        """Return what a reader wants to know; the score goes by the name of the metric."""
        known = asdict(self)
        del known["positions"]
        return {metric if name == "score" else name: value for name, value in known.items()}


class SearchLog(TrialLog):
    """The file ``trials.jsonl`` of a search."""

    def asked(self, proposal: Proposal) -> None:
        """Write down a proposal."""
        self.append({"event": "asked", **asdict(proposal)})

    def answered(self, proposal: Proposal, result: TrialResult) -> None:
        """Write down a result."""
        line = {"event": "answered", "trial": proposal.trial, "asked_epochs": proposal.epochs}
        self.append({**line, **asdict(result)})

    def events(self) -> list[Event]:
        """Return all proposals and results; a result comes with its proposal."""
        found: list[Event] = []
        waiting: dict[tuple[int, int], Proposal] = {}
        for line in self.read():
            if line.pop("event") == "asked":
                proposal = Proposal(**line)
                waiting[proposal.key] = proposal
                found.append((proposal, None))
            else:
                key = line.pop("trial"), line.pop("asked_epochs")
                if "mrr" in line:  # as the first logs call it
                    line["score"] = line.pop("mrr")
                found.append((waiting.pop(key), TrialResult(**line)))
        return found
