"""What a person sees while a search goes on: trials done, the best so far, the time left."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.progress import Progress as RichProgress

from nscaching.experiments.tune.journal import Trial
from nscaching.training import Progress
from nscaching.training.progress import duration

if TYPE_CHECKING:
    from nscaching.experiments.tune.search import Search


class SearchProgress:
    """A bar in a terminal, a line a trial elsewhere, or nothing."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._rich: RichProgress | None = None
        self._started = time.monotonic()
        self._before = 0

    def say(self, text: str) -> None:
        """Print a line, unless nothing is to be shown."""
        self._progress.say(text)

    @contextlib.contextmanager
    def showing(self, search: Search) -> Iterator[None]:
        """Show the trials of a search; those an earlier part has done do not count for the pace."""
        self._started, self._before = time.monotonic(), search.done
        with self._progress.rich() as rich:
            task = rich.add_task("tuning", total=search.limit, completed=search.done, news="")
            self._rich, self._task = rich, task
            yield
        self._rich = None

    def answered(self, trial: Trial, search: Search) -> None:
        """Show how a trial went."""
        best, name = search.best, search.measure.name
        news = "" if best is None else f"best valid {name} {best.score:.4f} (trial {best.number})"
        if self._rich is not None:
            self._rich.update(self._task, completed=search.done, news=news)
        if self._progress.style != "lines":
            return
        spent = time.monotonic() - self._started
        left = spent / max(1, search.done - self._before) * (search.limit - search.done)
        mine = (
            f"valid {name} {trial.score:.4f}" if trial.error is None else f"failed: {trial.error}"
        )
        print(
            f"trial {trial.number} ({trial.epochs} epochs, {duration(trial.seconds)}): {mine};  "
            f"{search.done}/{search.limit} done, {news or 'no best yet'}  "
            f"{duration(spent)} gone, {duration(left)} left",
            file=sys.stderr,
            flush=True,
        )
