"""Two workers of a local Dask cluster, and a process that is killed."""

import json
import multiprocessing
import os
import signal
import time

import numba
import pytest
import torch
from dask.distributed import LocalCluster

import nscaching as ns
from nscaching import TrainingInterrupted, UserError
from nscaching.experiments import workers
from nscaching.experiments.runner import Failed
from nscaching.experiments.workers import _threads
from nscaching.interrupt import StopRequest

from ..training.helpers import flags, start
from .tune.helpers import SMALL, search, untimed_result

pytest.importorskip("smac")


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(2, threads_per_worker=1, dashboard_address=None) as running:
        yield running


@pytest.mark.slow
def test_two_workers_train_the_trials_of_one(cluster, graph, tmp_path):
    told = {"trials": 6, "method": "random"}
    alone = search(graph, tmp_path / "one", **told)
    both = search(graph, tmp_path / "two", dask=cluster.scheduler_address, **told)
    assert untimed_result(both) == untimed_result(alone)
    lines = [json.loads(line) for line in both.folder.log.path.read_text().splitlines()]
    events = [line["event"] for line in lines]
    assert events[:2] == ["asked", "asked"], "the second was not started beside the first"


@pytest.mark.slow
def test_a_stopped_parallel_search_repeats_nothing(cluster, graph, tmp_path):
    told = {"trials": 8, "epochs": 9, "method": "smac-mf", "dask": cluster.scheduler_address}
    done = search(graph, tmp_path / "S", **told)
    log = done.folder.log.path
    lines = log.read_text().splitlines(keepends=True)
    asked = [i for i, line in enumerate(lines) if '"asked"' in line]
    log.write_text("".join(lines[: asked[5] + 1]))  # as if killed with questions open
    again = ns.tune(out=tmp_path / "S", resume=True, progress="none", dask=told["dask"])
    assert log.read_text().startswith("".join(lines[: asked[5] + 1]))
    assert len(again.trials) == 8
    keys = [
        (line["trial"], line["asked_epochs"])
        for line in map(json.loads, log.read_text().splitlines())
        if line["event"] == "answered"
    ]
    assert len(keys) == len(set(keys))
    assert max(trial.epochs for trial in again.trials) == 9


def test_a_scheduler_that_is_not_there_is_named(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_CONNECT_SECONDS", 0.5)
    with pytest.raises(UserError, match=r"No Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        search(graph, tmp_path / "S", dask="tcp://127.0.0.1:9")


@pytest.mark.slow
def test_a_killed_search_ends_with_the_same_trials(data, tmp_path):
    told = {"trials": 6, **SMALL}
    process = start("tune", data, *flags(told), "--out", tmp_path / "S", "--json")
    log = tmp_path / "S" / "trials.jsonl"
    deadline = time.monotonic() + 120
    while not log.exists() or len(log.read_text().splitlines()) < 5:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert len(log.read_text().splitlines()) < 12
    resumed = ns.tune(out=tmp_path / "S", resume=True, progress="none")
    assert untimed_result(resumed) == untimed_result(search(data, tmp_path / "whole", **told))


def test_a_stop_leaves_the_processes_of_the_caller_alone():
    others = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    others.start()
    try:
        with pytest.raises(KeyboardInterrupt), workers.processes(print, 2):
            raise KeyboardInterrupt
        others.join(1)
        assert others.is_alive()
    finally:
        others.kill()
        others.join()


@pytest.mark.parametrize("count", [0, 1])
def test_threads_are_as_before_after_a_trial(count):
    before = torch.get_num_threads(), numba.get_num_threads()
    most = numba.config.NUMBA_NUM_THREADS
    torch.set_num_threads(2)
    numba.set_num_threads(most)
    try:
        with _threads(count):
            assert torch.get_num_threads() == (count or 2)
            assert numba.get_num_threads() == min(count or 2, most)
        assert (torch.get_num_threads(), numba.get_num_threads()) == (2, most)
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


def test_workers_share_the_cores_that_the_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert [workers.even_share(count).threads for count in (1, 2, 4, 8)] == [6, 3, 1, 1]


def load_then_train(folder):
    """Do what a cell does: load, which no signal ends, and then train, which one does."""
    (folder / f"loading{os.getpid()}").touch()
    time.sleep(1.0)
    with StopRequest() as stop:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if stop.signal is not None:
                raise TrainingInterrupted("stopped", stop.signal)
            time.sleep(0.05)
    return "trained to its end"


def stop_while_loading(folder, given):
    with workers.processes(load_then_train, 2) as pool:
        given += [pool.submit(folder) for _ in range(4)]  # some wait for a worker
        while len(list(folder.iterdir())) < 2:
            time.sleep(0.05)
        raise KeyboardInterrupt


def test_a_stop_reaches_a_training_that_has_not_begun(tmp_path):
    began, given = time.monotonic(), []
    with pytest.raises(KeyboardInterrupt):
        stop_while_loading(tmp_path, given)
    assert time.monotonic() - began < 50  # a training takes a minute
    told = [future.result() for future in given if not future.cancelled()]
    assert len(told) >= 2
    assert all(each == Failed("it was stopped") for each in told)
