"""Kernels are compiled by a process of its own, so that a first run is as all later ones."""

import os
import subprocess
import sys

import pytest

from nscaching.training import TrainConfig, rehearsal


class Rehearsals:
    """Stands in for the process; notes what was said and how often it was begun."""

    def __init__(self, error=None):
        self.said, self.begun, self.error = [], 0, error

    def run(self, *arguments, **options):
        self.begun += 1
        assert options["env"]["NSCACHING_REHEARSAL"] == "0"
        if self.error is not None:
            raise self.error

    def of(self, **options):
        rehearsal.rehearse(TrainConfig(**options), self.said.append)
        return self.begun


@pytest.fixture
def begin(monkeypatch, tmp_path):
    def begin(error=None):
        made = Rehearsals(error)
        monkeypatch.setenv("NSCACHING_REHEARSAL", "1")
        monkeypatch.setattr(subprocess, "run", made.run)
        place = rehearsal._marker
        monkeypatch.setattr(rehearsal, "_marker", lambda config: tmp_path / place(config).name)
        return made

    return begin


def test_a_run_is_rehearsed_once(begin):
    made = begin()
    assert made.of(scoring="transe") == 1
    assert made.of(scoring="transe", epochs=7, dim=9, seed=3) == 1
    assert len(made.said) == 1
    assert made.of(scoring="transe", sampler="bernoulli") == 2


def test_a_rehearsal_that_fails_is_not_repeated(begin):
    made = begin(subprocess.CalledProcessError(1, "python"))
    assert made.of() == 1
    assert made.of() == 1


def test_it_can_be_turned_off(begin, monkeypatch):
    made = begin()
    monkeypatch.setenv("NSCACHING_REHEARSAL", "0")
    assert made.of() == 0
    assert not made.said


@pytest.mark.slow
def test_the_first_run_on_a_machine_is_as_the_second(tmp_path):
    environment = {
        **os.environ,
        "NSCACHING_REHEARSAL": "1",
        "NUMBA_CACHE_DIR": str(tmp_path / "kernels"),
    }
    models, said = [], []
    for name in ("first", "second"):
        command = [
            "-m",
            "nscaching",
            "train",
            "world",
            "--scoring",
            "transe",
            "--epochs",
            "2",
            "--dim",
            "20",
            "--out",
        ]
        run = subprocess.run(
            [sys.executable, *command, str(tmp_path / name)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        models.append((tmp_path / name / "model.safetensors").read_bytes())
        said.append("Compiling kernels" in run.stderr)
    assert models[0] == models[1]
    assert said == [True, False]
