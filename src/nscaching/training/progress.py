"""What a person sees while a run goes on: a bar in a terminal, lines elsewhere, or nothing."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

from nscaching.errors import UserError

#: "auto" is a bar in a terminal and lines otherwise.
STYLES = ("auto", "bar", "lines", "none")
#: Seconds between two lines where there is no terminal, unless a validation has news.
_LINE_SECONDS = 15.0
#: Seconds between two moves of the bar within an epoch.
_BAR_SECONDS = 0.1


class Progress:
    """Shows progress on stderr, so that stdout stays free for results."""

    def __init__(self, style: str = "auto") -> None:
        if style not in STYLES:
            raise UserError(f"progress must be one of {', '.join(STYLES)}, not '{style}'.")
        self.console = Console(stderr=True)
        self.style = style
        if style == "auto":
            # In a notebook rich draws its bars with ipywidgets.
            in_notebook = self.console.is_jupyter and find_spec("ipywidgets") is not None
            self.style = "bar" if self.console.is_terminal or in_notebook else "lines"
        self._bars: RichProgress | None = None  #: those of a run that goes on

    @contextlib.contextmanager
    def training(self, epochs: int, seconds: float | None = None) -> Iterator[Progress.Bar]:
        """Show the epochs of a run, or its seconds where those are what limits it.

        A run within a run gets its bar under the other, for as long as it goes on.
        """
        if self._bars is not None:
            bar = Progress.Bar(self, self._bars, epochs, seconds)
            try:
                yield bar
            finally:
                self._bars.remove_task(bar.task)
            return
        with self.rich() as self._bars:
            try:
                yield Progress.Bar(self, self._bars, epochs, seconds)
            finally:
                self._bars = None

    @contextlib.contextmanager
    def work(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a piece of work of known size; yields a function told how much more is done."""
        with self.rich() as rich:
            task = rich.add_task(what, total=total, news="")
            yield lambda done: rich.advance(task, done)

    def say(self, text: str) -> None:
        """Print a line, unless nothing is to be shown."""
        if self.style != "none":
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def rich(self) -> RichProgress:
        """Return the bars that all long work shows."""
        return RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[news]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=self.console,
            disable=self.style != "bar",
            transient=True,
        )

    class Bar:
        """The bar of one run."""

        def __init__(
            self, progress: Progress, rich: RichProgress, epochs: int, seconds: float | None
        ) -> None:
            self._progress, self._rich, self._epochs = progress, rich, epochs
            self._seconds = seconds
            what, total = ("training", epochs) if seconds is None else ("seconds", round(seconds))
            self.task: TaskID = rich.add_task(what, total=total, news="")
            self._done = 0
            self._loss = self._valid = ""
            self._started = self._said = self._shown = time.monotonic()
            self._first, self._not_training = 0, 0.0
            self._steady = (0, self._started)  #: an epoch that compiled nothing begins here

        def advance(self, epochs: int, seconds: float = 0.0) -> None:
            """Count epochs, and their seconds, that an earlier part of the run has done."""
            self._done = self._first = epochs
            self._steady = (epochs, self._started)
            self._not_training = -seconds
            self._show(epochs)

        def within_epoch(self, share: float) -> None:
            """Show the share of the current epoch that is done."""
            now = time.monotonic()
            if self._progress.style == "bar" and now - self._shown > _BAR_SECONDS:
                self._shown = now
                self._show(self._done + share)

        def epoch_done(self, epoch: int, loss: float) -> None:
            """Show the loss of an epoch."""
            self._done = epoch
            if epoch == self._first + 1:
                self._steady = (epoch, time.monotonic())
            self._loss = f"loss {loss:.4f}"
            self._show(epoch)
            if time.monotonic() - self._said > _LINE_SECONDS:
                self._say(self._loss)

        def validated(
            self, epoch: int, name: str, value: float, best: float, best_epoch: int
        ) -> None:
            """Show a validation by the measure that decides."""
            self._valid = f"valid {name} {value:.4f} (best {best:.4f} at {best_epoch})"
            self._show(epoch)
            self._say(f"{self._loss}, {self._valid}")

        @contextlib.contextmanager
        def evaluating(self, split: str, queries: int) -> Iterator[Callable[[int], None]]:
            """Show the evaluation of a split under the bar of the epochs."""
            task = self._rich.add_task(f"ranking {split}", total=queries, news="")
            began = time.monotonic()
            try:
                yield lambda done: self._rich.advance(task, done)
            finally:
                self._rich.remove_task(task)
                self._not_training += time.monotonic() - began

        def _show(self, done: float) -> None:
            news = " ".join(part for part in (self._loss, self._valid) if part)
            if self._seconds is not None:
                done, news = round(self._trained()), f"epoch {self._done} {news}"
            self._rich.update(self.task, completed=done, news=news)

        def _trained(self) -> float:
            """Return the seconds of training so far, validations not counted."""
            return time.monotonic() - self._started - self._not_training

        def _left(self) -> float:
            """Guess the seconds left: those of the epochs, or of the limit where it comes first."""
            since, began = self._steady
            if self._done == since:  # nothing is known but the first epoch, which may compile
                since, began = self._first, self._started
            spent = time.monotonic() - began
            left = spent / max(1, self._done - since) * (self._epochs - self._done)
            if self._seconds is None:
                return left
            return min(left, max(0.0, self._seconds - self._trained()))

        def _say(self, news: str) -> None:
            if self._progress.style != "lines":
                return
            self._said = time.monotonic()
            total = f"/{self._epochs}" if self._seconds is None else ""
            print(
                f"epoch {self._done}{total}  {news}  "
                f"{duration(self._said - self._started)} gone, {duration(self._left())} left",
                file=sys.stderr,
                flush=True,
            )


def duration(seconds: float) -> str:
    """Return seconds as a person writes them: 8.1 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"
