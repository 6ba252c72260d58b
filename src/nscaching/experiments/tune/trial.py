"""Training one trial in its own folder: what may go wrong, its threads and its stream."""

from __future__ import annotations

import contextlib
import gc
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from nscaching.errors import TrainingDiverged, TrainingInterrupted, UserError
from nscaching.experiments.tune.folder import base_folder
from nscaching.experiments.tune.journal import FAILED, Answer
from nscaching.experiments.tune.subject import Subject
from nscaching.kernels.availability import HAVE_NUMBA
from nscaching.kernels.cuda_graphs import CAPTURE_LOCK


@dataclass(frozen=True)
class TrialPlace:
    """Where trials are kept, and how a worker trains them; small, so that it travels."""

    folder: str  #: of the search
    subject: Subject  #: what is tuned
    threads: int = 0  #: CPU threads a trial may use; 0 is what torch was given
    own_stream: bool = False  #: several trials share the GPU from one process

    def trial_folder(self, number: int) -> Path:
        """Return the folder of a trial."""
        return Path(self.folder) / "trials" / f"{number:03d}"


def train_trial(place: TrialPlace, number: int, options: dict[str, Any], epochs: int) -> Answer:
    """Train a trial up to some epochs, or go on with it.

    A run that diverges or does not fit into memory is a failed
    trial; a user's mistake would spoil every trial, and ends the search.
    """
    started = time.monotonic()
    base, out = base_folder(Path(place.folder)), place.trial_folder(number)
    try:
        with _threads(place.threads), _stream(place.own_stream):
            answer = place.subject.train(base, out, {**options, "epochs": epochs})
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
    epochs = answer.epochs or place.subject.epochs_done(out)
    return replace(answer, epochs=epochs, seconds=time.monotonic() - started)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Keep a trial to its share of the cores; Dask gives torch one, and Numba asks for all."""
    with contextlib.ExitStack() as afterwards:
        if count > 0:
            afterwards.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(count)
        if HAVE_NUMBA:
            import numba

            afterwards.callback(numba.set_num_threads, numba.get_num_threads())
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
