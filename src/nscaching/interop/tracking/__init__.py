"""Trackers: what a run writes for TensorBoard, MLflow, Weights & Biases or a spreadsheet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nscaching.errors import UserError
from nscaching.interop.tracking.base import RunStart, Tracker
from nscaching.interop.tracking.trackers import TRACKERS, make_tracker

__all__ = ["TRACKERS", "RunStart", "Tracker", "Tracking", "make_tracker"]

#: What a line of ``metrics.jsonl`` holds besides numbers.
_NOT_VALUES = ("event", "epoch", "split")


class Tracking:
    """Passes what a run records to its trackers; one that fails does not fail the run."""

    def __init__(
        self,
        wanted: str | Tracker | Iterable[str | Tracker] = (),
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        several = [wanted] if isinstance(wanted, str | Tracker) else list(wanted)
        self._trackers = [make_tracker(one) for one in several]
        self._say = say
        #: Every line that was recorded, for :attr:`nscaching.Run.history`.
        self.lines: list[dict[str, Any]] = []

    def begin(self, start: RunStart) -> None:
        """Start all; one that cannot start is an error, before anything is trained."""
        for tracker in self._trackers:
            tracker.on_start(start)

    def record(self, line: Mapping[str, Any]) -> None:
        """Pass on a line of ``metrics.jsonl``, and keep it."""
        self.lines.append(dict(line))
        epoch = int(line["epoch"])
        values = {
            name: float(value)
            for name, value in line.items()
            if name not in _NOT_VALUES and value is not None
        }
        if line["event"] == "epoch":
            self._tell(lambda tracker: tracker.on_epoch(epoch, values))
        else:
            self._tell(lambda tracker: tracker.on_evaluation(epoch, str(line["split"]), values))

    def end(self, status: str) -> None:
        """End all, once."""
        self._tell(lambda tracker: tracker.on_end(status))
        self._trackers = []

    def _tell(self, tell: Callable[[Tracker], None]) -> None:
        """Tell each; an error in a tracker ends that tracker, not hours of training."""
        for tracker in list(self._trackers):
            try:
                tell(tracker)
            except Exception as error:
                self._trackers.remove(tracker)
                what = str(error) if isinstance(error, UserError) else repr(error)
                self._say(f"{type(tracker).__name__} failed and is not used any more: {what}")
