"""Who trains the trials: this process, or SMAC's own Dask runner with local or remote workers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ConfigSpace import Configuration
from dask.distributed import Client, LocalCluster
from smac import Scenario
from smac.runhistory import StatusType, TrialInfo, TrialValue
from smac.runner.abstract_runner import AbstractRunner
from smac.runner.abstract_serial_runner import AbstractSerialRunner
from smac.runner.dask_runner import DaskParallelRunner

from nscaching.errors import UserError
from nscaching.experiments.tune.journal import SUCCESS
from nscaching.experiments.tune.subject import Subject
from nscaching.experiments.tune.trial import TrialPlace, train_trial
from nscaching.training.interrupt import interrupts_ignored

#: How long a scheduler may take to answer.
_CONNECT_SECONDS = 10.0
#: What Dask says of a trial that it will not finish.
_GIVEN_UP = ("error", "lost", "cancelled")


class TrialRunner(AbstractSerialRunner):
    """Trains what SMAC asks for; SMAC's Dask runner sends it to workers as it is."""

    def __init__(self, scenario: Scenario, place: TrialPlace) -> None:
        super().__init__(scenario)
        self._place = place

    def run(
        self,
        config: Configuration,
        instance: str | None = None,
        budget: float | None = None,
        seed: int | None = None,
        additional_info: dict[str, Any] | None = None,
    ) -> tuple[StatusType, float | list[float], float, float, dict[str, Any]]:
        """Train a trial; what it is comes with the question, not from SMAC."""
        assert additional_info is not None
        answer = train_trial(self._place, **additional_info)
        status = StatusType.SUCCESS if answer.status == SUCCESS else StatusType.CRASHED
        return status, answer.cost, answer.seconds, 0.0, {**additional_info, "answer": answer}


class LastingDaskRunner(DaskParallelRunner):
    """SMAC's Dask runner, for which a worker that dies is one failed trial and not the end.

    The kernel kills a process that takes too much memory; Dask then starts the worker and the trial
    again a few times, from its last checkpoint, before it gives the trial up.
    """

    def __init__(self, single_worker: TrialRunner, client: Client) -> None:
        super().__init__(single_worker, dask_client=client)
        self._submitted: dict[Any, TrialInfo] = {}

    def submit_trial(self, trial_info: TrialInfo, **dask_data_to_scatter: dict[str, Any]) -> None:
        """Send a trial to a worker."""
        super().submit_trial(trial_info, **dask_data_to_scatter)
        self._submitted[self._pending_trials[-1].key] = trial_info

    def _process_pending_trials(self) -> None:
        for future in [each for each in self._pending_trials if each.status in _GIVEN_UP]:
            self._pending_trials.remove(future)
            error = f"its worker died ({future.exception() or future.status})"
            value = TrialValue(1.0, status=StatusType.CRASHED, additional_info={"error": error})
            self._results_queue.append((self._submitted[future.key], value))
        super()._process_pending_trials()


@contextlib.contextmanager
def make_runner(
    scenario: Scenario,
    folder: Path,
    subject: Subject,
    *,
    workers: int,
    dask: str | None,
    workers_as: str,
    device: str,
) -> Iterator[AbstractRunner]:
    """Yield the runner of a search; its workers end with it."""
    where = str(folder.resolve())
    if dask is not None:
        with _scheduler(dask) as client:
            runner = TrialRunner(scenario, TrialPlace(where, subject))
            yield LastingDaskRunner(runner, client)
    elif workers == 1:
        yield TrialRunner(scenario, TrialPlace(where, subject))
    else:
        threads = workers_as == "threads" or (workers_as == "auto" and device == "cuda")
        if threads and device == "cpu":
            raise UserError(
                "Workers as threads need a GPU: the CPU kernels use threads of their own. "
                "Leave --workers-as out."
            )
        share = max(1, (os.cpu_count() or 1) // workers)
        place = TrialPlace(where, subject, threads=0 if threads else share, own_stream=threads)
        with _local_client(workers, threads) as client:
            yield LastingDaskRunner(TrialRunner(scenario, place), client)


@contextlib.contextmanager
def _local_client(workers: int, threads: bool) -> Iterator[Client]:
    """Start a Dask cluster on this machine: one process with threads, or a process a worker."""
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
def _scheduler(address: str) -> Iterator[Client]:
    """Connect to a cluster by the address of its scheduler or by its scheduler file."""
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
