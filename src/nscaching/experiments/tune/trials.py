"""Trials, their log, and the folder of a search.

``search.yaml`` says what was asked for, ``base/`` holds the graph and the options all trials begin
with, ``trials/NNN/`` are the trials: ordinary run folders, or the scores of embeddings of nodes.
``best.yaml`` is there from the first finished trial on; ``trials.csv``, ``result.json`` and the
pictures are the outcome.

``trials.jsonl``, the trial log, is only ever added to, and it is the truth: an optimiser that is
asked and told the same things in the same order, from the same seed, stands where the old one
stood. Replaying the log is all that resuming a search needs, with any number of workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from nscaching.artefacts import MARKER, ArtefactFolder
from nscaching.artefacts.files import find_foreign, write_text
from nscaching.errors import CHOOSE_ANOTHER, UserError
from nscaching.experiments.runner import TrialLog
from nscaching.experiments.tune.space import AnyOptions, Position, read_options
from nscaching.nodes.embedding import NodeFolder
from nscaching.training import RunFolder
from nscaching.training.config import read_yaml

SUCCESS, FAILED, RUNNING = "success", "failed", "running"
#: Ended by the seconds of its search: it counts in this session, and another one continues it.
CUT = "cut"


@dataclass(frozen=True)
class Proposal:
    """What the optimiser wants to know: how good a configuration is after so many epochs."""

    trial: int  #: counted from 1; a configuration has one number, whatever its epochs
    positions: dict[str, Position]
    epochs: int
    budget: float | None = None  #: epochs as the optimiser counts them, not always whole

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from other proposals."""
        return self.trial, self.epochs


@dataclass(frozen=True)
class TrialResult:
    """How training a trial up to some epochs went."""

    status: str
    score: float | None = None  #: the best on valid so far, by the metric of the search
    best_epoch: int = 0
    epochs: int = 0  #: epochs the run has in all
    anew: bool = True  #: trained from the start, not from a checkpoint
    seconds: float = 0.0  #: spent for this result
    error: str | None = None
    fatal: bool = False  #: a user's mistake, which would spoil every trial


#: A proposal, or a proposal with its result.
Event = tuple[Proposal, TrialResult | None]


@dataclass
class Trial:
    """One configuration of the space and how far it has come."""

    number: int
    config: dict[str, Any]
    positions: dict[str, Position]
    run: str
    status: str = RUNNING
    asked_epochs: int = 0  #: the most it was given; ``epochs`` is fewer after early stopping
    score: float | None = None  #: by the metric of the search, the best on valid
    best_epoch: int = 0
    epochs: int = 0
    seconds: float = 0.0
    error: str | None = None

    def add(self, proposal: Proposal, result: TrialResult) -> int:
        """Take one more result in; return the epochs that were trained for it."""
        trained = result.epochs if result.anew else max(0, result.epochs - self.epochs)
        if result.status != CUT:
            self.asked_epochs = max(self.asked_epochs, proposal.epochs)
        self.status, self.error = result.status, result.error
        self.seconds += result.seconds
        self.epochs = max(self.epochs, result.epochs)
        if result.score is not None and (self.score is None or result.score > self.score):
            self.score, self.best_epoch = result.score, result.best_epoch
        return trained


def by_metric(fields: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return fields with the score under the name of the metric."""
    return {metric if name == "score" else name: value for name, value in fields.items()}


@dataclass(frozen=True)
class CurvePoint:
    """Where a search stood after a result (the paper's figure: top1 and top3)."""

    trials: int  #: different configurations so far
    epochs: int  #: trained so far, in all
    seconds: float  #: spent training so far, over all workers
    top1: float  #: the best score of a trial
    top3: float | None  #: the mean of the three best trials, once there are three

    @classmethod
    def of(cls, trials: Iterable[Trial], epochs: int, seconds: float) -> CurvePoint | None:
        """Return where these trials stand; None before the first of them has a score."""
        begun = [trial for trial in trials if trial.status != RUNNING]
        top = sorted((t.score for t in begun if t.score is not None), reverse=True)[:3]
        if not top:
            return None
        return cls(len(begun), epochs, seconds, top[0], sum(top) / 3 if len(top) == 3 else None)


class SearchLog(TrialLog):
    """The file ``trials.jsonl`` of a search."""

    def asked(self, proposal: Proposal) -> None:
        """Write down a proposal."""
        self.append({"event": "asked", **asdict(proposal)})

    def answered(self, proposal: Proposal, result: TrialResult, elapsed: float) -> None:
        """Write down a result, and the seconds of all sessions so far."""
        line = {"event": "answered", "trial": proposal.trial, "asked_epochs": proposal.epochs}
        self.append({**line, **asdict(result), "elapsed": elapsed})

    def ended(self, elapsed: float) -> None:
        """Write down the seconds of all sessions at the end of one."""
        self.append({"event": "ended", "elapsed": elapsed})

    def elapsed(self) -> float:
        """Return the seconds of all sessions; of a log without them, those of the trials."""
        lines = self.read()
        told = [float(line["elapsed"]) for line in lines if "elapsed" in line]
        return max(told) if told else sum(float(line.get("seconds", 0)) for line in lines)

    def events(self) -> tuple[list[Event], list[Proposal]]:
        """Return all proposals and results, these with their proposal; and what has no result."""
        found: list[Event] = []
        waiting: dict[tuple[int, int], Proposal] = {}
        for number, line in enumerate(self.read(), 1):
            try:
                event, _ = line.pop("event"), line.pop("elapsed", None)
                if event == "ended":
                    continue
                if event == "asked":
                    proposal = Proposal(**line)
                    waiting[proposal.key] = proposal
                    found.append((proposal, None))
                else:
                    key = line.pop("trial"), line.pop("asked_epochs")
                    if "mrr" in line:  # as the first logs call it
                        line["score"] = line.pop("mrr")
                    found.append((waiting.pop(key), TrialResult(**line)))
            except (KeyError, TypeError) as error:
                raise UserError(
                    f"{self.path}, line {number} is no line of a search ({error}). Restore the "
                    "file from a copy, or begin the search again with --overwrite."
                ) from error
        return found, list(waiting.values())


#: Every key that ``search.yaml`` has had since the first version.
_KEYS = {"trials", "method", "space", "planned_trials", "fixed"}
#: Files of a run or of an embedding of nodes, which are what trials are.
_TRIAL = (MARKER, *RunFolder.own, *NodeFolder.own)
_SMAC = ("configspace", "intensifier", "optimization", "runhistory", "scenario")


class SearchFolder(ArtefactFolder):
    """The files of one search."""

    kind = "search"
    what = "a search"
    otherwise = "holds no search"
    own = (
        *("search.yaml", "trials.jsonl", "best.yaml", "trials.csv", "result.json", "report.html"),
        *("curve.svg", "importance.svg"),
        *("curve.png", "importance.png"),  # of earlier versions
        *(f"smac/[0-9]*/{name}.json" for name in _SMAC),
        *(f"{place}/{name}" for place in ("base", "trials/[0-9]*") for name in _TRIAL),
        "trials/[0-9]*/seeds.jsonl",
    )

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.settings = self.path / "search.yaml"
        self.base = self.path / "base"
        self.log = SearchLog(self.path / "trials.jsonl")
        self.best = self.path / "best.yaml"
        self.table = self.path / "trials.csv"
        self.result = self.path / "result.json"

    def trial(self, number: int) -> Path:
        """Return the folder of a trial."""
        return self.path / "trials" / f"{number:03d}"

    def looks_like_one(self) -> bool:
        """Tell whether a search was begun here."""
        if not self.settings.is_file() or not (self.base / "config.yaml").is_file():
            return False
        try:
            return read_yaml(self.settings).keys() >= _KEYS
        except UserError:
            return False

    def refuse_occupied(self, overwrite: bool) -> None:
        """Refuse a folder that holds something else, or a search that is not to be replaced."""
        begun = self.holds_one()
        replaced = overwrite or (begun and not self.log.path.exists())
        foreign = find_foreign(self.path, self.own) if begun and replaced else None
        if foreign is not None:
            raise UserError(
                f"{foreign} is no file of a search, so {self.path} is not replaced. Move it "
                f"away, or {CHOOSE_ANOTHER}"
            )
        super().refuse_occupied(replaced)

    def sweep(self) -> None:
        """Remove what a killed process left, in the folders of trials that nobody writes too."""
        super().sweep()
        for place in (self.base, *self.path.glob("trials/[0-9]*")):
            if place.is_dir() and not place.is_symlink():
                with contextlib.suppress(UserError), RunFolder(place).writing():
                    pass

    def create(
        self, options: AnyOptions, fixed: dict[str, Any], write_base: Callable[[Path], None]
    ) -> None:
        """Begin a search; the files of an earlier one here are removed, by name.

        The first number of trials shapes the initial design, so it is kept beside the present one.
        """
        record = {**options.as_dict(), "planned_trials": options.trials, "fixed": fixed}
        record["first"] = "base"
        text = yaml.safe_dump(record, sort_keys=False, allow_unicode=True)
        with self.replacing(marker={}) as new:
            write_base(new / self.base.name)
            write_text(new / self.settings.name, text)

    def read(self) -> tuple[AnyOptions, dict[str, Any], int]:
        """Return the options of the search, the fixed training options and the planned trials."""
        if not self.settings.is_file():
            raise UserError(
                f"{self.path} holds no search to resume. Start one with 'nscaching tune DATA --out "
                f"{self.path}'."
            )
        record = read_yaml(self.settings)
        record.pop("first", None)
        fixed, planned = record.pop("fixed", {}), record.pop("planned_trials", 0)
        options = read_options(record, str(self.settings))
        if not isinstance(fixed, dict) or not isinstance(planned, int):
            raise UserError(f"{self.settings} is damaged; restore it, or begin the search again.")
        return options, fixed, planned

    def starts_at_the_paper(self) -> bool:
        """Tell whether the first trial is the paper's, as in searches of the first version."""
        return "first" not in read_yaml(self.settings)
