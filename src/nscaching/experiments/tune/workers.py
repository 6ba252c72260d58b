"""Who trains the trials: this process, workers of this machine, or those of a Dask cluster."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from nscaching.errors import UserError
from nscaching.experiments.runner import Executor, failure
from nscaching.experiments.tune.objective import Objective
from nscaching.experiments.tune.trials import FAILED, Proposal, SearchFolder, TrialResult
from nscaching.interrupt import interrupts_ignored
from nscaching.kernels.availability import HAVE_NUMBA
from nscaching.kernels.cuda_graphs import CAPTURE_LOCK
from nscaching.options import Options, option

#: How long a scheduler may take to answer.
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class Work:
    """A trial to train: a proposal, its options, and the seconds that are left for it."""

    proposal: Proposal
    options: dict[str, Any]
    seconds: float | None = None


class Place(Protocol):
    """Runs what workers are sent; a small dataclass, so that it travels to them."""

    @property
    def threads(self) -> int:
        """CPU threads that a worker may use; 0 is what torch was given."""

    @property
    def own_stream(self) -> bool:
        """Whether several workers share the GPU from one process."""

    def run(self, work: Any) -> Any:
        """Run one; a failure is a result."""

    def lost(self, work: Any, error: str) -> Any:
        """Return the result of one whose worker died."""


@dataclass(frozen=True)
class TrialPlace:
    """Where trials are kept, and how a worker trains them; small, so that it travels."""

    folder: str  #: of the search
    objective: Objective
    threads: int = 0  #: CPU threads a trial may use; 0 is what torch was given
    own_stream: bool = False  #: several trials share the GPU from one process

    def run(self, work: Work) -> TrialResult:
        """Train a trial."""
        return train_trial(self, work)

    def lost(self, work: Work, error: str) -> TrialResult:
        """Return the result of a trial whose worker died."""
        return TrialResult(FAILED, error=error)


def train_trial(place: TrialPlace, work: Work) -> TrialResult:
    """Train a trial up to some epochs, or resume it.

    A run that diverges or does not fit into memory is a failed trial; a user's mistake would spoil
    every trial, and ends the search.
    """
    started = time.monotonic()
    folder = SearchFolder(place.folder)
    out = folder.trial(work.proposal.trial)
    options = {**work.options, "epochs": work.proposal.epochs}
    try:
        with share_of_machine(place):
            result = place.objective.train(folder.base, out, options, work.seconds)
    except Exception as error:
        fatal = isinstance(error, UserError)
        result = TrialResult(FAILED, error=failure(error), fatal=fatal)
    epochs = result.epochs or place.objective.epochs_done(out)
    return replace(result, epochs=epochs, seconds=time.monotonic() - started)


@contextlib.contextmanager
def share_of_machine(place: Place) -> Iterator[None]:
    """Keep what is trained to a worker's share of the cores or of the GPU; free it afterwards."""
    try:
        with _threads(place.threads), _stream(place.own_stream):
            yield
    finally:
        if torch.cuda.is_available():
            gc.collect()  # the captured graphs of a trial hold memory of the device
            with CAPTURE_LOCK:
                torch.cuda.empty_cache()


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
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        yield
        stream.synchronize()


class DaskExecutor(Executor[Any, Any]):
    """Trains on the workers of a Dask client; a worker that dies is one failed trial.

    The kernel kills a process that takes too much memory; Dask then starts the worker and the trial
    again a few times, from its last checkpoint, before it gives the trial up.
    """

    def __init__(self, client: Any, place: Place) -> None:
        super().__init__(place.run)
        self._client, self._place = client, place
        self._running: dict[Any, Any] = {}  #: by future, in the order of submission

    def free(self) -> bool:
        """Tell whether a worker has nothing to do."""
        return len(self._running) < int(sum(self._client.nthreads().values()))

    def busy(self) -> bool:
        """Tell whether a worker has something to do."""
        return bool(self._running)

    def submit(self, work: Any) -> None:
        """Send a trial to a worker."""
        self._running[self._client.submit(self._run, work, pure=False)] = work

    def results(self) -> Iterator[tuple[Any, Any]]:
        """Wait for a trial; yield those that are finished."""
        from dask.distributed import wait

        wait(list(self._running), return_when="FIRST_COMPLETED")
        for future in [each for each in self._running if each.status != "pending"]:
            work = self._running.pop(future)
            if future.status == "finished":
                yield work, future.result()
            else:
                error = f"its worker died ({future.exception() or future.status})"
                yield work, self._place.lost(work, error)


@dataclass(kw_only=True)
class Workers(Options):
    """How many trials are trained at once, and by whom."""

    workers: int = option(1, "Trials trained at once on this machine.", group="Workers", low=1)
    workers_as: str = option(
        "auto",
        "How workers are made; auto is threads on a GPU, which they share from one process, and "
        "processes on the CPU.",
        group="Workers",
        choices=("auto", "processes", "threads"),
    )
    dask: str | None = option(
        None,
        "Train on the workers of this Dask scheduler: its address or scheduler file.",
        group="Workers",
    )

    @contextlib.contextmanager
    def executor(self, place: Place, device: str) -> Iterator[DaskExecutor | None]:
        """Yield what trains trials, None for this process; its workers end with it."""
        if self.dask is None and self.workers == 1:
            yield None
            return
        if self.dask is not None:
            connected = _scheduler(self.dask)
        else:
            threads = self.workers_as == "threads" or (
                self.workers_as == "auto" and device == "cuda"
            )
            if threads and device == "cpu":
                raise UserError(
                    "Workers as threads need a GPU: the CPU kernels use threads of their own. "
                    "Drop --workers-as."
                )
            share = max(1, (os.cpu_count() or 1) // self.workers)
            own = {"threads": 0 if threads else share, "own_stream": threads}
            place = replace(place, **own)  # type: ignore[type-var]
            connected = _local_client(self.workers, threads)
        with connected as client:
            yield DaskExecutor(client, place)


@contextlib.contextmanager
def _local_client(workers: int, threads: bool) -> Iterator[Any]:
    """Start a Dask cluster on this machine: one process with threads, or one process per worker."""
    from dask.distributed import Client, LocalCluster

    with interrupts_ignored():  # workers inherit that: Ctrl-C is for this process, which ends them
        cluster = LocalCluster(
            n_workers=1 if threads else workers,
            threads_per_worker=workers if threads else 1,
            processes=not threads,
            dashboard_address=None,
            memory_limit=0,
            silence_logs="ERROR",
        )
    with cluster, Client(cluster) as client:
        yield client


@contextlib.contextmanager
def _scheduler(address: str) -> Iterator[Any]:
    """Connect to a cluster by the address of its scheduler or by its scheduler file."""
    from dask.distributed import Client

    named = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    try:
        client = Client(**named, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        raise UserError(
            f"No Dask scheduler answers at {address}. Start one with 'dask scheduler' and workers "
            "with 'dask worker', and give its address, such as tcp://host:8786."
        ) from error
    with client:
        if not client.nthreads():
            raise UserError(f"The Dask scheduler at {address} has no workers; start some first.")
        yield client
