"""The doctor's advice follows from what is found."""

import re
from pathlib import Path

import pytest

from nscaching.extras import EXTRAS
from nscaching.runs import checks

CALM = {"cores": 4, "cores_in_all": 4, "threads": 4, "load": 0.5, "variables": {}}
READY = {"numba": True, "compiled": True, "can_be_kept": True}
CARD = {"usable": "cuda", "triton": True, "compiler": "cc", "driver": True}


def test_a_machine_that_is_well_gets_no_advice():
    assert checks._about_processor(CALM) == []
    assert checks._about_kernels(READY) == []
    assert checks._about_gpu(CARD) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"threads": 1, "variables": {"OMP_NUM_THREADS": "1"}}, ["1 of 4", "OMP_NUM_THREADS says"]),
        ({"threads": 8}, ["8 threads share 4 cores"]),
        ({"load": 9.0}, ["busy", "9.0"]),
    ],
)
def test_advice_on_the_processor(changed, words):
    (said,) = checks._about_processor(CALM | changed)
    assert all(word in said for word in words)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"numba": False}, "NSCACHING_PLAIN"),
        ({"can_be_kept": False}, "NUMBA_CACHE_DIR"),
        ({"compiled": False}, "first run"),
    ],
)
def test_advice_on_kernels(changed, word):
    (said,) = checks._about_kernels(READY | changed)
    assert word in said


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"triton": False}, "pip install triton"),
        ({"compiler": None}, "gcc"),
        ({"usable": None}, "CUDA"),
        ({"usable": None, "driver": False}, "no GPU"),
    ],
)
def test_advice_on_the_gpu(changed, word, monkeypatch):
    monkeypatch.setattr(checks.sys, "platform", "linux")
    (said,) = checks._about_gpu(CARD | changed)
    assert word in said


def test_threads_are_counted_as_they_are(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = checks.examine()
    assert found["processor"]["variables"]["OMP_NUM_THREADS"] == "1"
    assert found["versions"]["torch"]


def test_extras_are_those_of_pyproject():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    listed = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    found = set(re.findall(r"^(\w+) = \[", listed, re.M))
    assert found - set(EXTRAS) == {"dev", "track", "world", "docs"}
    assert set(EXTRAS) <= found
