"""Kernels are compiled by a process of its own, so that a first run is as all later ones."""

import io
import json
import os
import subprocess
import sys

import pytest
from safetensors.torch import load_file

import nscaching as ns
from nscaching.models.matches import Dot
from nscaching.training import TrainConfig, warm_up

from .helpers import ring


class WarmUps:
    """Stands in for the process; notes what was said and how often it was begun."""

    def __init__(self, error=None):
        self.said, self.begun, self.error = [], 0, error

    def run(self, *arguments, **options):
        self.begun += 1
        assert options["env"]["NSCACHING_WARM_UP"] == "0"
        if self.error is not None:
            raise self.error

    def of(self, **options):
        warm_up.warm_up(TrainConfig(**options), self.said.append)
        return self.begun


@pytest.fixture
def begin(monkeypatch, tmp_path):
    def begin(error=None):
        made = WarmUps(error)
        monkeypatch.setenv("NSCACHING_WARM_UP", "1")
        monkeypatch.setattr(subprocess, "run", made.run)
        place = warm_up._marker
        monkeypatch.setattr(warm_up, "_marker", lambda config: tmp_path / place(config).name)
        return made

    return begin


def test_kernels_are_warmed_up_once(begin):
    made = begin()
    assert made.of(scoring="transe") == 1
    assert made.of(scoring="transe", epochs=7, dim=9, seed=3) == 1
    assert len(made.said) == 1
    assert made.of(scoring="transe", sampler="bernoulli") == 2
    assert made.of(scoring="transe", sampler="bernoulli", negatives=64) == 3
    assert made.of(scoring="transe", sampler="bernoulli", negatives=100, cache_size=90) == 3


@pytest.mark.parametrize(("size", "many"), [(4, False), (50, True)])
def test_many_candidates_have_their_own_kernels_warmed_up(size, many, monkeypatch):
    called, summed = [], Dot.backward_summed
    monkeypatch.setattr(
        Dot, "backward_summed", lambda *given: called.append(given) or summed(*given)
    )
    options = {"scoring": "complex", "loss": "softmax", "cache_size": size, "pool": 64}
    config = TrainConfig(device="cpu", optimizer="adagrad", **options)
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(config.as_dict())))
    warm_up.perform()
    assert bool(called) == many


def test_a_warm_up_that_fails_is_not_repeated(begin):
    made = begin(subprocess.CalledProcessError(1, "python"))
    assert made.of() == 1
    assert made.of() == 1


def test_a_run_that_is_done_compiles_nothing_and_keeps_its_files(begin, tmp_path):
    data = ring()
    options = {"dim": 4, "valid_every": 1, "progress": "none", "device": "cpu"}
    ends = {"early": {"epochs": 50, "patience": 1}, "whole": {"epochs": 1, "patience": 0}}
    for name, limits in ends.items():
        out = tmp_path / name
        run = ns.train(data, out=out, lr=0.5, **limits, **options)
        assert run.summary["epochs"] < 50
        files = [*out.glob("*.safetensors"), *out.glob("checkpoint/*")]
        before = {file: file.stat().st_mtime_ns for file in files}
        made = begin()
        for cached in tmp_path.glob("warm-*"):
            cached.unlink()
        ns.train(out=out, resume=True, progress="none")
        assert not made.begun
        assert before == {file: file.stat().st_mtime_ns for file in files}
    ns.train(out=out, resume=True, epochs=2, progress="none")
    assert made.begun


@pytest.mark.parametrize("name", ["NSCACHING_WARM_UP", "NSCACHING_REHEARSAL"])
def test_it_can_be_turned_off_also_by_the_name_of_the_first_version(name, begin, monkeypatch):
    made = begin()
    monkeypatch.delenv("NSCACHING_WARM_UP")
    monkeypatch.setenv(name, "0")
    assert made.of() == 0
    assert not made.said


@pytest.mark.slow
def test_the_first_runs_on_a_machine_are_as_a_later_one(tmp_path):
    """Two processes compile at once into an empty folder; a third finds the kernels there."""
    environment = {
        **os.environ,
        "NSCACHING_WARM_UP": "1",
        "NUMBA_CACHE_DIR": str(tmp_path / "kernels"),
    }
    options = ["--scoring", "transe", "--epochs", "2", "--dim", "20"]
    models, said = [], []
    for names in (["first", "twin"], ["later"]):
        command = [sys.executable, "-m", "nscaching", "train", "world", *options, "--out"]
        started = [
            subprocess.Popen(
                [*command, str(tmp_path / name)], env=environment, stderr=subprocess.PIPE, text=True
            )
            for name in names
        ]
        for name, process in zip(names, started, strict=True):
            said.append("Compiling kernels" in process.communicate()[1])
            assert process.returncode == 0
            kept = load_file(tmp_path / name / "model.safetensors")  # each has an id of its own
            models.append({table: rows.numpy().tobytes() for table, rows in kept.items()})
    assert models[0] == models[1] == models[2]
    assert said == [True, True, False]
