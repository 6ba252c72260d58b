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
    epochs_done: int = 0  #: above 0 where a stopped run goes on


class Tracker:
    """Told of a run as it goes; a subclass does something with what it wants to know."""

    def on_start(self, start: RunStart) -> None:
        """Begin; training has not."""

    def on_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """Take the loss, and the seconds so far, after an epoch; epochs count from 1."""

    def on_evaluation(self, epoch: int, split: str, values: Mapping[str, float]) -> None:
        """Take the metrics of a split; ``epoch`` is that of the model."""

    def on_end(self, status: str) -> None:
        """End: the run is ``finished``, was ``stopped`` by a signal, or has ``failed``."""
