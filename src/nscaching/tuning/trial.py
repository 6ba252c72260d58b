"""Training one trial: an ordinary run in its own folder, started or gone on with."""

from __future__ import annotations

import contextlib
import functools
import gc
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from nscaching.acceleration import HAVE_NUMBA
from nscaching.api import make_trainer
from nscaching.errors import TrainingDiverged, TrainingInterrupted, UserError
from nscaching.graph import KnowledgeGraph
from nscaching.training import Progress, RunFolder
from nscaching.training.execution import CAPTURE_LOCK
from nscaching.tuning.journal import FAILED, SUCCESS, Answer


@dataclass(frozen=True)
class TrialPlace:
    """Where trials are kept, and how a worker trains them; small, so that it travels."""

    folder: str  #: of the search
    threads: int = 0  #: CPU threads a trial may use; 0 is what torch was given
    own_stream: bool = False  #: several trials share the GPU from one process

    def base(self) -> RunFolder:
        """Return the run folder that holds the graph and the options all trials begin with."""
        return RunFolder(Path(self.folder) / "base")

    def run_folder(self, number: int) -> Path:
        """Return the folder of a trial."""
        return Path(self.folder) / "trials" / f"{number:03d}"


def train_trial(place: TrialPlace, number: int, options: dict[str, Any], epochs: int) -> Answer:
    """Train a trial up to some epochs, from its checkpoint where it has one.

    The test split is not looked at. A run that diverges or does not fit into memory is a failed
    trial; a user's mistake would spoil every trial, and ends the search.
    """
    started = time.monotonic()
    try:
        answer = _trained(place, number, {**options, "epochs": epochs})
    except TrainingInterrupted as error:
        raise KeyboardInterrupt from error  # no optimiser takes that for a failed trial
    except UserError as error:
        answer = Answer(FAILED, error=str(error), fatal=True)
    except (TrainingDiverged, MemoryError) as error:
        answer = Answer(FAILED, error=str(error) or "out of memory")
    except Exception as error:
        memory = re.search("can't allocate|out of memory", str(error))
        kind = "out of memory" if memory else type(error).__name__
        answer = Answer(FAILED, error=f"{kind}: {error}")
    if torch.cuda.is_available():
        gc.collect()  # the captured graphs of the trial hold memory of the device
        with CAPTURE_LOCK:
            torch.cuda.empty_cache()
    epochs = answer.epochs or _epochs_done(place.run_folder(number))
    return replace(answer, epochs=epochs, seconds=time.monotonic() - started)


def _trained(place: TrialPlace, number: int, options: dict[str, Any]) -> Answer:
    out = place.run_folder(number)
    with _threads(place.threads), _stream(place.own_stream):
        trainer = make_trainer(
            _graph(str(place.base().path)),
            out=out,
            config=place.base().read_config(),
            resume=True,
            progress=Progress("none"),
            **options,
        )
        anew = not RunFolder(out).checkpoint.exists()
        trainer.run(resume=True)
    counters = trainer.counters
    if counters.best_valid is None:
        raise UserError("Nothing was validated; a search needs valid triples and --valid-every.")
    return Answer(
        SUCCESS,
        mrr=float(counters.best_valid["mrr"]),
        best_epoch=counters.best_epoch,
        epochs=counters.epoch,
        anew=anew,
    )


def _epochs_done(folder: Path) -> int:
    """Return the epochs that a failed run has come to."""
    lines = RunFolder(folder).read_metrics()
    return max((int(line.get("epoch", 0)) for line in lines), default=0)


@functools.lru_cache(maxsize=2)
def _graph(base: str) -> KnowledgeGraph:
    """Read the graph once in a process; all trials share it."""
    return RunFolder(base).read_graph()


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Keep a trial to its share of the cores; Dask gives torch one, and Numba asks for all."""
    if count > 0:
        torch.set_num_threads(count)
    if HAVE_NUMBA:
        import numba

        most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
        numba.set_num_threads(min(torch.get_num_threads(), most))
    yield


@contextlib.contextmanager
def _stream(own: bool) -> Iterator[None]:
    """Give a trial a CUDA stream of its own, so that trials of one process overlap."""
    if not own or not torch.cuda.is_available():
        yield
        return
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        yield
        stream.synchronize()
