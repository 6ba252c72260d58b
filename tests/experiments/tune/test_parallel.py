"""Two workers of a local Dask cluster, and a process that is killed."""

import json
import os
import signal
import time

import pytest
from dask.distributed import LocalCluster

import nscaching as ns
from nscaching import UserError
from nscaching.experiments.tune import runners

from ...training.helpers import flags, start
from .helpers import SMALL, search, untimed_result


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
    lines = [json.loads(line) for line in both.folder.journal.path.read_text().splitlines()]
    events = [line["event"] for line in lines]
    assert events[:2] == ["asked", "asked"], "the second was not started beside the first"


@pytest.mark.slow
def test_a_stopped_parallel_search_repeats_nothing(cluster, graph, tmp_path):
    told = {"trials": 8, "epochs": 9, "method": "smac-mf", "dask": cluster.scheduler_address}
    done = search(graph, tmp_path / "S", **told)
    book = done.folder.journal.path
    lines = book.read_text().splitlines(keepends=True)
    asked = [i for i, line in enumerate(lines) if '"asked"' in line]
    book.write_text("".join(lines[: asked[5] + 1]))  # as if killed with questions open
    again = ns.tune(out=tmp_path / "S", resume=True, progress="none", dask=told["dask"])
    assert book.read_text().startswith("".join(lines[: asked[5] + 1]))
    assert len(again.trials) == 8
    keys = [
        (line["trial"], line["asked_epochs"])
        for line in map(json.loads, book.read_text().splitlines())
        if line["event"] == "answered"
    ]
    assert len(keys) == len(set(keys))
    assert max(trial.epochs for trial in again.trials) == 9


def test_a_scheduler_that_is_not_there_is_named(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(runners, "_CONNECT_SECONDS", 0.5)
    with pytest.raises(UserError, match=r"No Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        search(graph, tmp_path / "S", dask="tcp://127.0.0.1:9")


@pytest.mark.slow
def test_a_killed_search_ends_with_the_same_trials(data, tmp_path):
    told = {"trials": 6, **SMALL}
    process = start("tune", data, *flags(told), "--out", tmp_path / "S", "--json")
    book = tmp_path / "S" / "trials.jsonl"
    deadline = time.monotonic() + 120
    while not book.exists() or len(book.read_text().splitlines()) < 5:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert len(book.read_text().splitlines()) < 12
    resumed = ns.tune(out=tmp_path / "S", resume=True, progress="none")
    assert untimed_result(resumed) == untimed_result(search(data, tmp_path / "whole", **told))
