"""The optimiser as a search sees it: ask, tell, and take the book of an earlier search in."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from ConfigSpace import Configuration
from smac import Scenario
from smac.runhistory import StatusType, TrialInfo, TrialValue

from nscaching.experiments.tune import smac_parts
from nscaching.experiments.tune.journal import SUCCESS, Answer, Event, Question
from nscaching.experiments.tune.space import Position, SearchSpace

#: After so many questions in a row with known answers the space counts as used up.
_SAME_AGAIN = 200


class ReplayDiffers(Exception):
    """The optimiser does not ask again what the book says it asked."""


class Optimiser:
    """SMAC or random search with trials numbered, positions plain and epochs whole."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        method: str,
        trials: int,
        epochs: int,
        min_epochs: int = 0,
        seed: int,
        folder: Path,
    ) -> None:
        self.space, self.method, self.trials, self.epochs = space, method, trials, epochs
        self.scenario: Scenario = smac_parts.make_scenario(
            space,
            method=method,
            trials=trials,
            epochs=epochs,
            min_epochs=min_epochs,
            seed=seed,
            folder=folder,
        )
        self._start()

    def _start(self) -> None:
        self._smac = smac_parts.build(self.scenario, self.method, self.trials)
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._open: dict[tuple[int, int], list[TrialInfo]] = {}
        self._answers: dict[tuple[int, int], Answer] = {}

    @property
    def settings(self) -> int:
        """How many different settings it has asked about."""
        return len(self._numbers)

    @property
    def asks_again(self) -> bool:
        """Whether it may ask about one setting more than once, at more epochs."""
        return self.method == "smac-mf"

    def ask(self) -> Question | None:
        """Return the next question, or None when the space has nothing new.

        Different positions can mean the same setting (all low ones of a temperature are zero).
        What is known of a setting, or being found out, is not asked again.
        """
        for _ in range(_SAME_AGAIN):
            try:
                info = self._smac.ask()
            except StopIteration:
                return None
            positions = {name: _plain(info.config[name]) for name in self.space.names()}
            question = Question(self._number(positions), positions, self._epochs(info), info.budget)
            if question.key in self._answers:
                self._tell(info, self._answers[question.key])
                continue
            known = question.key in self._open
            self._open.setdefault(question.key, []).append(info)
            if not known:
                return question
        return None

    def _number(self, positions: dict[str, Position]) -> int:
        setting = tuple(self.space.options(positions).values())
        return self._numbers.setdefault(setting, len(self._numbers) + 1)

    def _epochs(self, info: TrialInfo) -> int:
        return self.epochs if info.budget is None else max(1, round(info.budget))

    def tell(self, question: Question, answer: Answer) -> None:
        """Take an answer in."""
        self._answers[question.key] = answer
        for info in self._open.pop(question.key):
            self._tell(info, answer)

    def _tell(self, info: TrialInfo, answer: Answer) -> None:
        status = StatusType.SUCCESS if answer.status == SUCCESS else StatusType.CRASHED
        value = TrialValue(cost=answer.cost, time=answer.seconds, status=status)
        self._smac.tell(info, value, save=False)

    def submission(self, question: Question, options: dict[str, Any]) -> TrialInfo:
        """Return a question as SMAC's runners take it, with all that a worker must know."""
        info = self._open[question.key][0]
        work = {"number": question.trial, "options": options, "epochs": question.epochs}
        return dataclasses.replace(info, additional_info=work)

    def replay(self, events: list[Event]) -> bool:
        """Ask and tell all of a book again; return whether every question came out the same.

        They do with the same versions of SMAC and its parts on a machine that computes alike. If
        not, a fresh optimiser is told the answers without having asked: nothing that was trained
        is lost, but what follows may differ from an unbroken search.
        """
        try:
            for question, answer in events:
                if answer is not None:
                    self.tell(question, answer)
                elif self.ask() != question:
                    raise ReplayDiffers
        except ReplayDiffers:
            self._take_in(events)
            return False
        return True

    def _take_in(self, events: list[Event]) -> None:
        self._start()
        seed = self._smac.ask().seed  # the one seed of all questions is known only from one
        self._start()
        for question, answer in events:
            if answer is not None:
                self.tell(question, answer)
                continue
            config = Configuration(self.scenario.configspace, values=question.positions)
            self._numbers[tuple(self.space.options(question.positions).values())] = question.trial
            self._open[question.key] = [TrialInfo(config, seed=seed, budget=question.budget)]

    def save(self) -> None:
        """Write SMAC's own files, which other tools read."""
        self._smac.optimizer.save()


def _plain(value: Any) -> Position:
    if isinstance(value, np.generic):
        plain: Position = value.item()
        return plain
    return value if isinstance(value, str | int) else float(value)
