"""One engine for running many configurations, under ``compare``, ``tune`` and ``reproduce``.

What finishes, well or not, becomes one record of a trial log. What the log has is not run again, so
an experiment that was stopped resumes where it was: see :func:`run_all`. A configuration is *done*,
*failed*, *stopped* (begun, and not in the log) or *waiting*.
"""

from __future__ import annotations

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from nscaching.artefacts.files import (
    append_json_line,
    read_sealed_lines,
    sealed,
    write_json_lines,
)
from nscaching.errors import CannotWrite, NSCachingError, TrainingInterrupted, stop_signal
from nscaching.graph import KnowledgeGraph
from nscaching.runs.api import resumed_config, train
from nscaching.runs.run import Run
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.diagnostics import training_seconds
from nscaching.training.progress import duration
from nscaching.training.recipes import FITTED, PAPER

DONE, FAILED, STOPPED, WAITING = "done", "failed", "stopped", "waiting"

Record = dict[str, Any]
C = TypeVar("C")
R = TypeVar("R")


class TrialLog:
    """JSON lines, one record per finished configuration, in the order in which they came.

    Each carries a digest. The log is believed up to the first line that was damaged, or that a
    killed process half wrote: what comes after it is run again, from checkpoints where there are
    some.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Record]:
        """Return all records that can be believed."""
        return read_sealed_lines(self.path)

    def repair(self) -> None:
        """Drop the others, so that the next record starts a line of its own."""
        if self.path.exists():
            write_json_lines(self.path, map(sealed, self.read()))

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record."""
        append_json_line(self.path, sealed(record))


def state_of(record: Mapping[str, Any] | None, begun: bool) -> str:
    """Return the state of a configuration from its record and from whether its folder is there."""
    if record is None:
        return STOPPED if begun else WAITING
    return FAILED if record.get("error") else DONE


def failure(error: Exception) -> str:
    """Return in a sentence why a configuration failed."""
    text = str(error)
    if isinstance(error, NSCachingError):
        return text
    if isinstance(error, MemoryError) or re.search("can't allocate|out of memory", text):
        return f"out of memory: {text}" if text else "out of memory"
    return f"{type(error).__name__}: {text}"


class DeviceLost(NSCachingError):
    """A GPU failed so that nothing else can run on it in this process."""


class Failed(NamedTuple):
    """Why there is no record."""

    reason: str


def attempt(run: Callable[[C], R], configuration: C) -> R | Failed:
    """Run a configuration; whatever goes wrong is a failure, but for a full disk and a lost GPU."""
    try:
        return run(configuration)
    except CannotWrite:
        raise
    except Exception as error:
        text = str(error)
        lost = type(error).__name__ == "AcceleratorError" or "CUDA error" in text
        if lost and "out of memory" not in text:
            raise DeviceLost(f"The GPU failed: {failure(error).splitlines()[0]}.") from None
        return Failed(failure(error))


class Experiment(ABC, Generic[C, R]):
    """What is run: which configuration is next, and what to do with its record."""

    noun: str  #: what a configuration is called: run, trial or cell
    total: int
    finished: int  #: how many configurations are done
    resume_command: str

    @abstractmethod
    def next(self) -> C | None:
        """Return the next configuration to run; None if there is none before another record."""

    @abstractmethod
    def take_in(self, configuration: C, record: R | Failed) -> None:
        """Write down a record, or that there is none."""


class Pool(NamedTuple):
    """What runs configurations: a way to submit one, and how many may run at once."""

    submit: Callable[[Any], Future[Any]]  #: the result is a record, or :class:`Failed`
    slots: Callable[[], int]


def this_process(run: Callable[[Any], Any]) -> Pool:
    """Return a pool that runs one configuration after another in this process."""

    def submit(configuration: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(attempt(run, configuration))
        return future

    return Pool(submit, lambda: 1)


def run_all(experiment: Experiment[C, Any], pool: Pool) -> None:
    """Run configurations until there are no more; an interrupt says how to resume."""
    submit, slots = pool
    running: dict[Future[Any], C] = {}  #: in the order of submission
    try:
        while True:
            configuration = experiment.next() if len(running) < slots() else None
            if configuration is not None:
                running[submit(configuration)] = configuration
            elif running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in [each for each in running if each in done]:
                    experiment.take_in(running.pop(future), _result(future))
            else:
                return
    except DeviceLost as error:
        raise NSCachingError(
            f"{error} Everything finished is kept. Resume with:\n  {experiment.resume_command}"
        ) from error
    except KeyboardInterrupt as error:
        raise TrainingInterrupted(
            f"Stopped with {experiment.finished} of {experiment.total} {experiment.noun}s "
            f"finished; everything is kept. Resume with:\n  {experiment.resume_command}",
            stop_signal(error),
        ) from error


def _result(future: Future[Any]) -> Any:
    """Return a record, or why there is none; what nothing can follow is raised."""
    try:
        return future.result()
    except (CannotWrite, DeviceLost):
        raise
    except BrokenProcessPool as error:
        raise NSCachingError(
            "A process died; everything finished is kept. Run the command again."
        ) from error
    except Exception as error:
        return Failed(f"its worker died ({error})")


class Sweep(Experiment[C, R]):
    """A list of configurations, one after another; those with a good record are skipped.

    A configuration has an ``identity``, what its record is known by, and a ``title``, how it is
    called on the screen.
    """

    def __init__(self, configurations: Sequence[C], progress: Progress) -> None:
        self.configurations, self.progress = configurations, progress
        self.total = len(configurations)
        self.records: dict[str, R] = {}  #: by identity, as they came
        self._failures: set[str] = set()
        self._ahead: list[C] | None = None  #: those without a record, known at the first next()

    @abstractmethod
    def _known(self, configuration: C) -> R | None:
        """Return the good record of an earlier session, where it is still what is asked for."""

    @abstractmethod
    def _failed(self, configuration: C, reason: str) -> R:
        """Return the record of a failure."""

    @abstractmethod
    def _seconds(self, configuration: C) -> float | None:
        """Return how long a configuration is expected to take; None where nothing is known."""

    @abstractmethod
    def _keep(self, configuration: C, record: R) -> None:
        """Write a record down."""

    def _keep_known(self, known: Sequence[tuple[C, R]]) -> None:
        """Write the records of earlier sessions down."""
        for configuration, record in known:
            self._keep(configuration, record)

    def _ready(self, configuration: C) -> bool:
        """Tell whether a configuration can start before another one has its record."""
        return True

    @property
    def finished(self) -> int:  # type: ignore[override]
        """How many configurations are done."""
        return len(self.records.keys() - self._failures)

    def next(self) -> C | None:
        """Return the next one without a record; say which it is and how long the rest takes."""
        if self._ahead is None:
            found: list[tuple[Any, R | None]]
            found = [(each, self._known(each)) for each in self.configurations]
            known = [(each, record) for each, record in found if record is not None]
            self.records |= {each.identity: record for each, record in known}
            self._keep_known(known)
            self._ahead = [each for each, record in found if record is None]
        ready = next((each for each in self._ahead if self._ready(each)), None)
        if ready is not None:
            self._announce(ready, self._ahead)
            self._ahead.remove(ready)
        return ready

    def _announce(self, each: Any, ahead: Sequence[C]) -> None:
        times = [seconds for x in ahead if (seconds := self._seconds(x)) is not None]
        left = sum(times) / len(times) * len(ahead) if times else None
        rest = "" if left is None else f" (about {duration(left)} left for all)"
        place = self.configurations.index(each) + 1
        self.progress.say(f"{self.noun.capitalize()} {place} of {self.total}: {each.title}{rest}")

    def take_in(self, configuration: Any, record: R | Failed) -> None:
        """Write a record down; say what failed."""
        if isinstance(record, Failed):
            self._failures.add(configuration.identity)
            self.progress.say(f"{configuration.title}, failed: {record.reason}")
            record = self._failed(configuration, record.reason)
        self.records[configuration.identity] = record
        self._keep(configuration, record)


# One configuration as a run folder: trained, resumed or known from before -------------------------

_SUMMARY = ("seconds", "epochs", "best_epoch", "extra_parameters", "device")


@dataclass(frozen=True)
class RunResult:
    """What one run gave, or why it failed."""

    sampler: str  #: label of the configuration
    seed: int
    run: str  #: folder, below that of the experiment
    config: str = ""  #: digest of the configuration, by which a finished run is known again
    error: str | None = None  #: why there are no results
    test: dict[str, Any] | None = None  #: metrics of the best validated model; None: no test split
    valid: dict[str, Any] | None = None
    accuracy: float | None = None  #: of triplet classification; None: no valid or test split
    seconds_per_epoch: float | None = None
    seconds: float = 0.0  #: of training and validating
    epochs: int = 0
    best_epoch: int | None = None
    extra_parameters: int | None = None
    device: str | None = None
    graph: str | None = None  #: digest of the graph; runs with the same one rank the same facts

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> RunResult:
        """Read back the fields of a record."""
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


@dataclass(frozen=True)
class PlannedRun:
    """A run folder that is to be made, or is known from before."""

    blank: RunResult  #: what is known of its result before
    folder: RunFolder
    options: Mapping[str, Any]  #: as they were given
    settings: TrainConfig  #: what they amount to

    @property
    def identity(self) -> str:
        """What its result is known by."""
        return self.blank.run

    @property
    def title(self) -> str:
        """How it is called on the screen."""
        return f"{self.blank.sampler}, seed {self.blank.seed}"

    def _changes(self) -> dict[str, Any]:
        """Return what is asked for now and differs from what the run was started with.

        What was not given and a recipe has fitted to the graph stays as it is.
        """
        stored, now = self.folder.read_config().as_dict(), self.settings.as_dict()
        kept = {"data"} if stored["recipe"] == PAPER else {"data"} | (FITTED - self.options.keys())
        return {name: now[name] for name in now if name not in kept and now[name] != stored[name]}

    def resumed(self) -> TrainConfig:
        """Return the settings that it would be resumed with, if it may be."""
        return resumed_config(self.folder, self._changes())

    def is_finished(self, known: RunResult) -> bool:
        """Tell whether what is known of it is still what is asked for."""
        if known.error is not None or not self.folder.is_run():
            return False
        return known.config == _digest(self.resumed())

    def make(
        self,
        source: KnowledgeGraph | str | Path | None,
        *,
        resume: bool,
        overwrite: bool,
        progress: Progress,
    ) -> tuple[Run, RunResult]:
        """Train it, or resume it, and return it with its numbers."""
        how: dict[str, Any] = {"out": self.folder.path, "progress": progress}
        how |= {"overwrite": overwrite, "probabilities": False}  # nobody asks most of these runs
        if resume and self.folder.is_run():
            run = train(source, resume=True, **how, **self._changes())
        else:
            run = train(source, remarks=False, **how, **self.options)  # samplers share them
        graph, summary, lines = run.graph, run.summary, self.folder.read_metrics()
        splits = len(graph.valid) and len(graph.test)
        accuracy = run.classification("test").accuracy if splits else math.nan
        return run, replace(
            self.blank,
            config=_digest(run.config),
            test=summary["test"],
            valid=summary["valid"],
            accuracy=None if math.isnan(accuracy) else accuracy,
            seconds_per_epoch=seconds_per_epoch(lines, run.config.pretrain_epochs),
            graph=graph_digest(graph),
            **{name: summary[name] for name in _SUMMARY},
        )


def _digest(config: TrainConfig) -> str:
    """Return a short name of a configuration, by which a finished run is known again."""
    return hashlib.sha256(config.as_yaml().encode()).hexdigest()[:16]


def graph_digest(graph: KnowledgeGraph) -> str:
    """Return a short name of a graph: runs on the same one rank the same facts."""
    return graph.fingerprint[:16]


def seconds_per_epoch(lines: Iterable[Mapping[str, Any]], pretrain_epochs: int) -> float | None:
    """Return the mean epoch of the sampler itself; its first, which may compile, is not counted."""
    ends = training_seconds(lines)
    if not ends:
        return None
    own = [end for end in ends if end[0] > pretrain_epochs]
    if len(own) < 2:
        return ends[-1][1] / ends[-1][0]
    (first, start), (last, end) = own[0], own[-1]
    return (end - start) / (last - first)
