"""Several cells at once: processes of this machine, each of which trains one at a time.

On a GPU they run beside one another under CUDA's Multi-Process Service, and in turn without it. No
process is killed while it trains, because under that service the fault of one is the fault of all:
a stop is passed on to them as SIGTERM, upon which a training ends after its step.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from nscaching.errors import NSCachingError, TrainingInterrupted
from nscaching.experiments.runner import Executor
from nscaching.experiments.tune.workers import Place


class Processes(Executor[Any, Any]):
    """Runs configurations in processes; what is wrong with one is its record."""

    def __init__(self, place: Place, count: int, pool: ProcessPoolExecutor) -> None:
        super().__init__(place.run)
        self._place, self._count, self._pool = place, count, pool
        self._running: dict[Future[Any], Any] = {}

    def free(self) -> bool:
        """Tell whether a process has nothing to do."""
        return len(self._running) < self._count

    def busy(self) -> bool:
        """Tell whether a process has something to do."""
        return bool(self._running)

    def submit(self, configuration: Any) -> None:
        """Send a configuration to a process."""
        self._running[self._pool.submit(_run, self._place, configuration)] = configuration

    def results(self) -> Iterator[tuple[Any, Any]]:
        """Wait for a record; yield those there are."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            configuration = self._running.pop(future)
            try:
                record = future.result()
            except BrokenProcessPool as error:
                raise NSCachingError(
                    "A process died; everything finished is kept. Run the command again."
                ) from error
            lost = self._place.lost(configuration, "it was stopped")
            yield configuration, lost if record is None else record


@contextlib.contextmanager
def processes(place: Place, count: int) -> Iterator[Processes | None]:
    """Yield what runs so many configurations at once, None for one; it ends with all of them."""
    if count == 1:
        yield None
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, spawn, initializer=_ignore_signals) as pool:
        try:
            yield Processes(place, count, pool)
        except BaseException:
            for child in multiprocessing.active_children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid or 0, signal.SIGTERM)
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _ignore_signals() -> None:
    """Let a training answer a signal, and nothing else: the first process decides."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _run(place: Place, configuration: Any) -> Any:
    try:
        return place.run(configuration)
    except TrainingInterrupted:
        return None
