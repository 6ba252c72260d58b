"""A search, from its first proposal to its last: what is next depends on what was found."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import Progress as RichProgress

from nscaching.artefacts.files import write_text
from nscaching.errors import NSCachingError, UserError, plural, resume_command
from nscaching.experiments.runner import Experiment, Failed, failure
from nscaching.experiments.tune.objective import Config, Objective, objective_of
from nscaching.experiments.tune.space import PAPERS_FIRST, AnyOptions, SearchSpace
from nscaching.experiments.tune.trials import (
    CUT,
    FAILED,
    RUNNING,
    CurvePoint,
    Proposal,
    SearchFolder,
    Trial,
    TrialResult,
)
from nscaching.training import Progress, RunFolder, sharded_checkpoint
from nscaching.training.progress import duration

#: When the first so many trials all fail, something other than the configurations is wrong.
_HOPELESS = 3


class SearchFailed(NSCachingError, RuntimeError):
    """No trial of a search could be trained."""


class Work(NamedTuple):
    """A trial to train, small enough to travel to workers."""

    proposal: Proposal
    options: dict[str, Any]
    seconds: float | None = None  #: that are left for the search
    counted: float = 0.0  #: seconds of the trial that are in the log


def train_trial(folder: str, objective: Objective, processes: int, work: Work) -> TrialResult:
    """Train a trial of the search in a folder up to some epochs, or resume it.

    A run that diverges or does not fit into memory is a failed trial; a user's mistake would spoil
    every trial, and ends the search. ``processes`` of this machine train it together.
    """
    started = time.monotonic()
    place = SearchFolder(folder)
    out = place.trial(work.proposal.trial)
    lost = max(0.0, _spent(out) - work.counted)  # by a session that was stopped in this trial
    how = place.base, out, {**work.options, "epochs": work.proposal.epochs}, work.seconds
    try:
        if processes == 1:
            result = objective.train(*how)
        else:  # loaded late, because Python warns of a loaded module that is run
            from nscaching.experiments.tune.group import train_in_group

            result = train_in_group(processes, *how)
    except Exception as error:
        fatal = isinstance(error, UserError)
        result = TrialResult(FAILED, error=failure(error), fatal=fatal)
    # What a failed trial has come to; an embedding of nodes keeps no metrics.
    trained = (int(line.get("epoch", 0)) for line in RunFolder(out).read_metrics())
    epochs = result.epochs or max(trained, default=0)
    return replace(result, epochs=epochs, seconds=lost + time.monotonic() - started)


def _spent(out: Path) -> float:
    """Return the seconds that a run was trained for in all sessions, up to its last epoch."""
    lines = RunFolder(out).read_metrics()
    return max((line["seconds"] for line in lines if line.get("event") == "epoch"), default=0.0)


class Search(Experiment[Work, TrialResult]):
    """Asks the optimiser for trials and tells it their results; keeps the log and the best."""

    noun = "trial"

    def __init__(
        self,
        folder: SearchFolder,
        settings: AnyOptions,
        progress: Progress,
        processes: int = 1,
        opened: float | None = None,
    ) -> None:
        from nscaching.experiments.tune.optimiser import Optimiser

        _, fixed, planned = folder.read()
        self.folder, self.progress, self.total = folder, progress, settings.trials
        self.resume_command = resume_command("tune", folder.path)
        self.objective = objective_of(settings)
        self.metric = self.objective.metric(folder.base)
        self.base: Config = self.objective.read_config(folder.base)
        first = self.base
        if folder.starts_at_the_paper() and settings.space in ("sampler", "sampler+"):
            first = replace(first, **PAPERS_FIRST)
        self.space = SearchSpace.build(settings.space, first, fixed)
        self.optimiser = Optimiser(
            self.space,
            method=settings.method,
            trials=planned,
            epochs=first.epochs,
            min_epochs=settings.min_epochs,
            seed=first.seed,
            folder=folder.path,
        )
        where = str(folder.path.resolve())
        self.train = functools.partial(train_trial, where, self.objective, processes)
        self.trials: dict[int, Trial] = {}
        self.curve: list[CurvePoint] = []
        self._epochs, self._trained = 0, 0.0  #: trained in all, and the seconds of it
        self.out_of_time = False
        self._seconds = math.inf if settings.seconds is None else settings.seconds
        self._started = time.monotonic()
        self._opened = self._started if opened is None else opened
        self._earlier, self._trains = 0.0, False  #: seconds of other sessions; trains anything
        self._resumed: list[Proposal] = []  #: those that a stopped search was training
        self._enough = False  #: nothing to propose before another result
        self._rich: RichProgress | None = None

    def resume(self) -> None:
        """Bring everything to where an earlier, stopped search was."""
        self.folder.log.repair()
        self._earlier = self.folder.log.elapsed()
        events, self._resumed = self.folder.log.events()
        if not self.optimiser.replay(events):
            self.progress.say(
                "The optimiser here does not repeat the proposals of the stopped search (another "
                "version or machine?); it learns from the finished trials and continues."
            )
        for proposal, result in events:
            if result is not None:
                self._add(proposal, result)
        self._write_best()
        self._drop_checkpoints()  # a process may have been killed before it did

    @property
    def seconds(self) -> float:
        """Seconds of all sessions; one that has nothing to train does not count."""
        return self._earlier + self._trains * (time.monotonic() - self._opened)

    def end(self) -> None:
        """Write SMAC's own files; say why no further trial is trained."""
        self.optimiser.save()
        if not self._trains and not self.out_of_time:
            done = plural(self.finished, "trial")
            self.progress.say(
                f"Nothing was left to train: the search has its {done}. A larger --trials prolongs "
                "it."
            )
        if self.out_of_time:
            self.progress.say(
                f"The {self._seconds:g} seconds are used up after {self.finished} of {self.total} "
                f"trials. Resume with:\n  {self.resume_command}"
            )

    # What the engine asks -------------------------------------------------------------------------

    @property
    def finished(self) -> int:  # type: ignore[override]
        """Trials with a result."""
        return sum(trial.status not in (RUNNING, CUT) for trial in self.trials.values())

    def next(self) -> Work | None:
        """Return the next trial: those that a stopped search was training come first.

        A proposal of one configuration too many is kept open: trials that are there may still earn
        more epochs when other results come in, so the optimiser is asked again after each.
        """
        while self._resumed and not self._time_is_up():
            if (work := self._work(self._resumed.pop(0))) is not None:
                return work
        if self._enough or self._time_is_up():
            return None
        may_ask = self.optimiser.asks_again or self.optimiser.configurations < self.total
        proposal = self.optimiser.ask() if may_ask else None
        if proposal is None:
            self._enough = True
            return None
        self.folder.log.asked(proposal)
        return self._work(proposal)

    def take_in(self, work: Work, result: TrialResult | Failed) -> None:
        """Write a result down, tell the optimiser, keep ``best.yaml`` up to date."""
        proposal = work.proposal
        if isinstance(result, Failed):
            result = TrialResult(FAILED, error=result.reason)
        if result.fatal:
            raise UserError(f"Trial {proposal.trial}: {result.error}")
        if result.status != CUT:
            self.folder.log.answered(proposal, result, self.seconds)
            self.optimiser.tell(proposal, result)
        before = self.best
        self._add(proposal, result)
        if self.best is not before:
            self._write_best()
        self._drop_checkpoints()
        self._show(self.trials[proposal.trial])
        self._give_up_if_hopeless()
        self._enough = False

    def _work(self, proposal: Proposal) -> Work | None:
        if proposal.trial > self.total:
            self._enough = True
            return None
        left = self._left()
        seconds = max(1e-3, left) if left < math.inf else None
        trial, self._trains = self._trial(proposal), True
        return Work(proposal, trial.config, seconds, trial.seconds)

    def _left(self) -> float:
        """Return the seconds that are left for the search, infinitely many without a limit."""
        return self._seconds - (time.monotonic() - self._started)

    def _time_is_up(self) -> bool:
        """Tell whether no further trial may start; the first one always may."""
        self.out_of_time = self._left() <= 0 and self.best is not None
        return self.out_of_time

    # The trials -----------------------------------------------------------------------------------

    def _trial(self, proposal: Proposal) -> Trial:
        number = proposal.trial
        if number not in self.trials:
            config, run = self.space.options(proposal.positions), str(self.folder.trial(number))
            self.trials[number] = Trial(number, config, proposal.positions, run)
        return self.trials[number]

    def _add(self, proposal: Proposal, result: TrialResult) -> None:
        self._epochs += self._trial(proposal).add(proposal, result)
        self._trained += result.seconds
        point = CurvePoint.of(self.trials.values(), self._epochs, self._trained)
        self.curve += [] if point is None else [point]

    @property
    def best(self) -> Trial | None:
        """The incumbent: the trial with the best score; the first of equals."""
        found = [trial for trial in self.trials.values() if trial.score is not None]
        return max(found, key=lambda trial: (trial.score, -trial.number), default=None)

    def _write_best(self) -> None:
        if self.best is not None:
            write_text(self.folder.best, replace(self.base, **self.best.config).as_yaml())

    def _drop_checkpoints(self) -> None:
        """Keep the checkpoints of the best trial and of those that may earn more epochs."""
        best = self.best
        for trial in self.trials.values():
            finished = trial.status == FAILED or trial.asked_epochs >= self.optimiser.epochs
            if finished and trial is not best:
                folder = RunFolder(trial.run)
                folder.checkpoint.unlink(missing_ok=True)
                sharded_checkpoint.drop(folder.latest.parent)

    def _give_up_if_hopeless(self) -> None:
        finished = [trial for trial in self.trials.values() if trial.status != RUNNING]
        if len(finished) == _HOPELESS and all(trial.status == FAILED for trial in finished):
            raise SearchFailed(
                f"The first {_HOPELESS} trials all failed, so the search was stopped. The last one "
                f"said: {finished[-1].error}"
            )

    # What a person sees ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def showing(self) -> Iterator[None]:
        """Show a bar of trials in a terminal, a line per trial elsewhere."""
        self._started, self._before = time.monotonic(), self.finished
        with self.progress.rich() as rich:
            self._task = rich.add_task("tuning", total=self.total, completed=self.finished, news="")
            self._rich = rich
            try:
                yield
            finally:
                if self._trains:
                    self.folder.log.ended(self.seconds)
        self._rich = None

    def _show(self, trial: Trial) -> None:
        best, name = self.best, self.metric.name
        news = "" if best is None else f"best valid {name} {best.score:.4f} (trial {best.number})"
        if self._rich is not None:
            self._rich.update(self._task, completed=self.finished, news=news)
        if self.progress.style != "lines":
            return
        spent = time.monotonic() - self._started
        left = spent / max(1, self.finished - self._before) * (self.total - self.finished)
        left = min(left, max(0.0, self._left()))
        mine = (
            f"valid {name} {trial.score:.4f}" if trial.error is None else f"failed: {trial.error}"
        )
        mine += " when the seconds were used up" if trial.status == CUT else ""
        self.progress.say(
            f"trial {trial.number} ({plural(trial.epochs, 'epoch')}, {duration(trial.seconds)}): "
            f"{mine};  "
            f"{self.finished}/{self.total} done, {news or 'no best yet'}  "
            f"{duration(spent)} gone, {duration(left)} left"
        )
