"""A search from its first question to its result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.errors import NSCachingError, UserError
from nscaching.experiments.tune.curves import Curve
from nscaching.experiments.tune.folder import SearchFolder
from nscaching.experiments.tune.journal import FAILED, RUNNING, Answer, Question, Trial
from nscaching.experiments.tune.progress import SearchProgress
from nscaching.experiments.tune.space import SearchSpace
from nscaching.experiments.tune.subject import Subject

if TYPE_CHECKING:
    from smac.runner.abstract_runner import AbstractRunner

    from nscaching.experiments.tune.optimiser import Optimiser

#: When the first so many trials all fail, something other than the settings is wrong.
_HOPELESS = 3


class SearchFailed(NSCachingError, RuntimeError):
    """No trial of a search could be trained."""


class Search:
    """Asks the optimiser, lets a runner train, and keeps the book."""

    def __init__(
        self,
        folder: SearchFolder,
        space: SearchSpace,
        subject: Subject,
        optimiser: Optimiser,
        trials: int,
        progress: SearchProgress,
    ) -> None:
        self.folder, self.space, self.subject = folder, space, subject
        self.measure = subject.measure(folder.base)
        self.optimiser, self.limit, self.progress = optimiser, trials, progress
        self.trials: dict[int, Trial] = {}
        self.curve = Curve()
        self._waiting: dict[tuple[int, int], Question] = {}
        self._enough = False

    def take_up(self) -> None:
        """Bring everything to where an earlier, stopped search was."""
        self.folder.journal.repair()
        events = self.folder.journal.events()
        if not self.optimiser.replay(events):
            self.progress.say(
                "The optimiser here does not repeat the questions of the stopped search (another "
                "version or machine?); it learns from the trials that are done and goes on."
            )
        for question, answer in events:
            if answer is not None:
                self._take_in(question, answer)
            else:
                self._waiting[question.key] = question

    def run(self, runner: AbstractRunner) -> None:
        """Ask, train and tell until the search has its trials.

        Questions that a stopped search was busy with come first. A question about one setting too
        many is kept waiting, unanswered: trials that are there may still earn more epochs when
        other answers come in, so the optimiser is asked again after each.
        """
        for waiting in list(self._waiting.values()):
            self._submit(runner, waiting)
        while True:
            if runner.count_available_workers() > 0 and not self._enough:
                question = self.optimiser.ask() if self._may_ask() else None
                if question is None:
                    self._enough = True
                    continue
                self._waiting[question.key] = question
                self.folder.journal.asked(question)
                self._submit(runner, question)
            elif runner.is_running():
                runner.wait()
                self._collect(runner)
            else:
                break
        self.optimiser.save()

    def _may_ask(self) -> bool:
        """Whether another question can be about a setting within the number of trials."""
        return self.optimiser.asks_again or self.optimiser.settings < self.limit

    def _submit(self, runner: AbstractRunner, question: Question) -> None:
        if question.trial > self.limit:
            self._enough = True
            return
        trial = self._trial(question)
        runner.submit_trial(self.optimiser.submission(question, trial.config))
        self._collect(runner)

    def _collect(self, runner: AbstractRunner) -> None:
        for info, value in runner.iter_results():
            work = info.additional_info
            question = self._waiting[work["number"], work["epochs"]]
            answer = value.additional_info.get("answer") or Answer(
                FAILED, error=str(value.additional_info.get("error"))
            )
            if answer.fatal:
                raise UserError(f"Trial {question.trial}: {answer.error}")
            self.folder.journal.answered(question, answer)
            self.optimiser.tell(question, answer)
            self._take_in(question, answer)
            self._drop_checkpoints()
            self.progress.answered(self.trials[question.trial], self)
            self._give_up_if_hopeless()
            self._enough = False

    def _take_in(self, question: Question, answer: Answer) -> None:
        self._waiting.pop(question.key, None)
        trained = self._trial(question).add(question, answer)
        self.curve.add(question, answer, trained)

    def _trial(self, question: Question) -> Trial:
        number = question.trial
        if number not in self.trials:
            run = self.folder.trials / f"{number:03d}"
            config = self.space.options(question.positions)
            self.trials[number] = Trial(number, config, question.positions, str(run))
        return self.trials[number]

    # What came out -------------------------------------------------------------------------------

    @property
    def done(self) -> int:
        """Trials with an answer."""
        return sum(trial.status != RUNNING for trial in self.trials.values())

    @property
    def best(self) -> Trial | None:
        """The trial with the best score; the first of equals."""
        found = [trial for trial in self.trials.values() if trial.score is not None]
        return max(found, key=lambda trial: (trial.score, -trial.number), default=None)

    def _drop_checkpoints(self) -> None:
        """Keep the checkpoints of the best trial and of those that may earn more epochs."""
        best = self.best
        for trial in self.trials.values():
            finished = trial.status == FAILED or trial.asked_epochs >= self.optimiser.epochs
            if finished and trial is not best:
                self.subject.forget(Path(trial.run))

    def _give_up_if_hopeless(self) -> None:
        answered = [trial for trial in self.trials.values() if trial.status != RUNNING]
        if len(answered) == _HOPELESS and all(trial.status == FAILED for trial in answered):
            raise SearchFailed(
                f"The first {_HOPELESS} trials all failed, so the search was stopped. The last one "
                f"said: {answered[-1].error}"
            )
