"""Trials that a group of processes trains: the same trials as one process has."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

import nscaching as ns
from nscaching import UserError
from nscaching.experiments.tune import group
from nscaching.experiments.tune.search import Work, train_trial
from nscaching.experiments.tune.trials import Proposal, SearchFolder
from nscaching.training import RunFolder

from ...training.helpers import flags, start
from .helpers import SMALL, search, untimed_result

STRATA = {**SMALL, "strata": 4, "space": "sampler", "method": "random"}


@pytest.fixture(scope="module")
def alone(graph, tmp_path_factory):
    """A search over strata by one process."""
    return search(graph, tmp_path_factory.mktemp("one") / "S", **STRATA, trials=2)


@pytest.fixture
def in_a_group(alone):
    return partial(train_trial, str(alone.folder.path), alone.objective, 2)


@pytest.mark.slow
def test_two_processes_train_the_trials_of_one(alone, graph, tmp_path):
    both = search(graph, tmp_path / "S", **STRATA, trials=2, processes=2)
    assert untimed_result(both) == untimed_result(alone)
    assert "alpha1" not in both.searched  # which does not go with strata
    assert both.config.strata == 4
    best, other = (RunFolder(trial.run) for trial in sorted(both.trials, key=lambda t: -t.score))
    assert best.has_model()
    assert best.has_checkpoint()
    assert other.has_model()
    assert not list(other.latest.parent.iterdir())
    assert ns.load_run(best.path).evaluate("valid").mrr == pytest.approx(both.best.score)


@pytest.mark.slow
def test_a_trial_is_resumed_by_a_group(alone, in_a_group):
    number = alone.best.number
    work = Work(Proposal(number, {}, epochs=5), alone.best.config)
    result = in_a_group(work)
    assert (result.epochs, result.anew, result.error) == (5, False, None)


@pytest.mark.slow
def test_what_fails_in_a_group_is_a_failed_trial(alone, in_a_group):
    failed = in_a_group(Work(Proposal(7, {}, epochs=2), {"lr": 1e30}))
    assert failed.status == "failed"
    assert "lr" in failed.error
    wrong = in_a_group(Work(Proposal(8, {}, epochs=2), {"lr": -1.0}))
    assert wrong.fatal
    assert "lr" in wrong.error


@pytest.mark.slow
def test_a_search_that_is_stopped_stops_its_groups(data, tmp_path):
    told = {**STRATA, "epochs": 2000, "trials": 2, "processes": 2, "checkpoint_seconds": 0}
    process = start("tune", data, *flags(told), "--out", tmp_path / "S")
    trial = RunFolder(SearchFolder(tmp_path / "S").trial(1))
    deadline = time.monotonic() + 200
    while not trial.has_checkpoint():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 143, said
    assert "Resume with" in said
    assert trial.lock.is_free()
    assert 0 < trial.read_counters().epoch < 2000


@pytest.mark.slow
def test_a_launcher_that_loses_its_worker_saves_and_ends(alone, tmp_path):
    often = {"epochs": 5000, "checkpoint_seconds": 0}
    asked = {"options": {**often, **alone.best.config}, "seconds": None}
    asked |= {"base": str(alone.folder.base), "out": str(tmp_path / "run")}
    (tmp_path / "asked.json").write_text(json.dumps({"processes": 2, "trial": asked}))
    words = [sys.executable, "-m", group.MODULE, tmp_path / "asked.json", tmp_path / "answer.json"]
    code = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    worker = subprocess.Popen([sys.executable, "-c", code, *map(str, words)])
    trial, deadline = RunFolder(tmp_path / "run"), time.monotonic() + 200
    while not trial.has_checkpoint() and time.monotonic() < deadline:
        time.sleep(0.05)
    worker.kill()
    worker.wait()
    group._wait_for(trial)
    assert trial.lock.is_free()
    assert 0 < trial.read_counters().epoch < 5000


#: Interrupts who started it, and says much before it saves; ends by itself where nobody reads.
_TALKS = """
import os, signal, sys, time

def end(*_):
    sys.stderr.write("x" * 300_000)
    sys.stderr.flush()
    open(sys.argv[1], "w").close()
    sys.exit()

signal.signal(signal.SIGTERM, end)
signal.alarm(20)
os.kill(os.getppid(), signal.SIGUSR1)
time.sleep(60)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signal here")
def test_a_launcher_that_says_much_when_it_is_stopped_still_saves(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            group._run([sys.executable, "-c", _TALKS, str(tmp_path / "saved")], dict(os.environ))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (tmp_path / "saved").exists()


def test_strata_must_suit_the_processes(alone, graph, tmp_path):
    with pytest.raises(UserError, match="3 processes cannot share 4 strata"):
        search(graph, tmp_path / "S", **STRATA, processes=3)
    with pytest.raises(UserError, match="3 processes cannot share 4 strata"):
        ns.tune(out=alone.folder.path, resume=True, processes=3)
    one = search(graph, tmp_path / "one", trials=1, method="random")
    with pytest.raises(UserError, match="begun with 1 strata, which 2 processes cannot share"):
        ns.tune(out=one.folder.path, resume=True, processes=2)


def test_embeddings_of_nodes_are_trained_by_one_process(tmp_path):
    with pytest.raises(UserError, match="by one process; drop --processes"):
        ns.tune("cora", space="nodes", processes=2, out=tmp_path / "S")
