"""The trackers of one run: which there are, and what they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nscaching.errors import UserError
from nscaching.interop.tracking import RunStart, Tracker, make_tracker

#: What can be given for the trackers of a run, and what stands for none.
Trackers = str | Tracker | Iterable[str | Tracker]
NO_TRACKER = "none"
WITHOUT_TRACKER = (
    "The run was begun with this tracker; --track none (track='none') resumes it without."
)
#: What a line of ``metrics.jsonl`` holds besides numbers.
_NOT_VALUES = ("event", "epoch", "split")


def _distinct(wanted: Trackers) -> Iterator[tuple[Tracker, str]]:
    """Yield a tracker for each target once, and how a resumed run names it."""
    several = [wanted] if isinstance(wanted, str | Tracker) else list(wanted)
    seen = set()
    for one in several if several != [NO_TRACKER] else []:
        tracker, name = make_tracker(one), ""
        if isinstance(one, str):
            kind, _, target = one.partition(":")
            path = Path(target).expanduser()
            name = one if "://" in target else f"{kind}:{path.absolute()}"
            known = name if "://" in target else f"{kind}:{path.resolve()}"
            if known in seen:
                continue
            seen.add(known)
        yield tracker, name


class Tracking:
    """Passes what a run records to its trackers; one that fails does not fail the run.

    With ``remembered`` the trackers are those that a resumed run was begun with.
    """

    def __init__(
        self,
        wanted: Trackers = (),
        say: Callable[[str], None] = lambda text: None,
        remembered: bool = False,
    ) -> None:
        distinct = list(_distinct(wanted))
        self.targets = [name for _, name in distinct if name]  #: what a run folder can remember
        self.remembered = remembered
        self._trackers = [tracker for tracker, _ in distinct]
        self._say = say
        #: Every line that was recorded, for :attr:`nscaching.Run.history`.
        self.lines: list[dict[str, Any]] = []

    def begin_anew(self) -> None:
        """Let each refuse a new run, before anything is written."""
        for tracker in self._trackers:
            tracker.on_new_run()

    def begin(self, start: RunStart) -> None:
        """Start all; one that cannot start is an error, before anything is trained."""
        for tracker in self._trackers:
            try:
                tracker.on_start(start)
            except Exception as error:
                if not self.remembered:
                    raise
                what = str(error).rstrip(".") or repr(error)
                raise UserError(f"{what}. {WITHOUT_TRACKER}") from error

    def leave_alone(self) -> None:
        """Tell nobody that was not named now: there is nothing to train."""
        if self.remembered:
            self._trackers = []

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
