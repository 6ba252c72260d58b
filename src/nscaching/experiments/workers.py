"""Who runs configurations: this process, workers of this machine, or those of a Dask cluster."""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nscaching.errors import TrainingInterrupted, UserError
from nscaching.experiments.runner import Failed, Pool, attempt, this_process
from nscaching.interrupt import become_worker, interrupts_ignored, worker_is_stopped
from nscaching.kernels.availability import HAVE_NUMBA
from nscaching.kernels.cuda_graphs import CAPTURE_LOCK
from nscaching.options import OptionGroup, Options
from nscaching.processes import cores

#: How long a scheduler may take to answer.
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class Share:
    """What of the machine a configuration may use; small, so that it travels to workers."""

    threads: int = 0  #: of the CPU; 0 is what torch was given
    own_stream: bool = False  #: several workers share the GPU from one process


@contextlib.contextmanager
def share_of_machine(share: Share) -> Iterator[None]:
    """Keep what is trained to a share of the cores or of the GPU; free it afterwards."""
    try:
        with _threads(share.threads), _stream(share.own_stream):
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


def _pool(
    executor: futures.Executor, run: Callable[[Any], Any], share: Share, slots: Callable[[], int]
) -> Pool:
    """Return the workers of an executor; ``run`` travels to them.

    The kernel kills a process that takes too much memory. Dask then starts the worker and the
    configuration again a few times, from its last checkpoint, before it gives it up as a failed
    one; a pool of processes ends.
    """
    return Pool(lambda configuration: executor.submit(_answer, share, run, configuration), slots)


def _answer(share: Share, run: Callable[[Any], Any], configuration: Any) -> Any:
    if worker_is_stopped():
        return Failed("it was stopped")
    try:
        return attempt(functools.partial(_within, share, run), configuration)
    except TrainingInterrupted:
        return Failed("it was stopped")


def _within(share: Share, run: Callable[[Any], Any], configuration: Any) -> Any:
    with share_of_machine(share):
        return run(configuration)


_workers = OptionGroup("Workers")


@dataclass(kw_only=True)
class Workers(Options):
    """How many trials are trained at once, and by whom."""

    workers: int = _workers(1, "Trials trained at once on this machine.", low=1)
    workers_as: str = _workers(
        "auto",
        "How workers are made; auto is threads on a GPU, which they share from one process, and "
        "processes on the CPU.",
        choices=("auto", "processes", "threads"),
    )
    dask: str | None = _workers(
        None, "Train on the workers of this Dask scheduler: its address or scheduler file."
    )

    processes: int = _workers(
        1,
        "Processes of a worker's machine that train a trial together, with sharded tables.",
        low=1,
    )

    @contextlib.contextmanager
    def pool(self, run: Callable[[Any], Any], device: str) -> Iterator[Pool]:
        """Yield what trains trials; workers end with it."""
        share = Share()
        if self.dask is None and self.workers == 1:
            yield this_process(functools.partial(_within, share, run))
            return
        if self.dask is not None:
            connected = _scheduler(self.dask)
        else:
            on_gpu = self.workers_as == "auto" and device == "cuda"
            threads = self.workers_as == "threads" or on_gpu
            if threads and device == "cpu":
                raise UserError(
                    "Workers as threads need a GPU: the CPU kernels use threads of their own. "
                    "Drop --workers-as."
                )
            share = Share(own_stream=True) if threads else even_share(self.workers)
            connected = _local_client(self.workers, threads)
        with connected as client:
            executor = client.get_executor(pure=False)
            yield _pool(executor, run, share, lambda: int(sum(client.nthreads().values())))


def even_share(workers: int) -> Share:
    """Return an equal part of the cores that this process may use for each of so many."""
    return Share(max(1, cores() // workers))


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


@contextlib.contextmanager
def processes(run: Callable[[Any], Any], count: int) -> Iterator[Pool]:
    """Yield what runs so many configurations at once on this machine, one in this process.

    On a GPU they run beside one another under CUDA's Multi-Process Service, and in turn without it.
    No process is killed while it trains, because under that service the fault of one is the fault
    of all: a stop is passed on to them as SIGTERM, upon which a training ends after its step.
    """
    if count == 1:
        yield this_process(run)
        return
    others = multiprocessing.active_children()  # of the script that called
    spawn = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(count, spawn, initializer=become_worker) as executor:
        try:
            yield _pool(executor, run, even_share(count), lambda: count)
        except BaseException:
            with interrupts_ignored():  # a second Ctrl-C must not leave them behind
                for child in set(multiprocessing.active_children()).difference(others):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child.pid or 0, signal.SIGTERM)
                executor.shutdown(wait=True, cancel_futures=True)
            raise
