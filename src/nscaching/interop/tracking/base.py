"""The callback protocol of a tracker: four moments of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RunStart:
    """What is known when training begins."""

    name: str  #: of the run
    config: Mapping[str, Any]  #: every option, as in ``config.yaml``
    epochs_done: int = 0  #: above 0 where a stopped run is resumed


class Tracker:
    """Told of a run as it trains; a subclass overrides the methods it needs.

    By default ``on_epoch`` and ``on_evaluation`` both call ``log_values``.
    """

    def on_start(self, start: RunStart) -> None:
        """Training is about to begin."""

    def on_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """An epoch is done: the loss, and the seconds so far; epochs count from 1."""
        self.log_values("train", epoch, values)

    def on_evaluation(self, epoch: int, split: str, values: Mapping[str, float]) -> None:
        """A split was evaluated; ``epoch`` is that of the model."""
        self.log_values(split, epoch, values)

    def on_end(self, status: str) -> None:
        """The run is ``finished``, was ``stopped`` by a signal, or has ``failed``."""

    def log_values(self, split: str, epoch: int, values: Mapping[str, float]) -> None:
        """Write values; those of training have the split ``train``."""
