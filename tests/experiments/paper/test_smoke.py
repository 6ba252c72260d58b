"""Every definition, on a tiny stand-in: all cells are run, and figures are drawn."""

import json

import pytest

from nscaching.experiments.paper import definitions
from nscaching.experiments.paper.results import Results

from .helpers import smoke


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """One folder for all: cells that two definitions share are made once."""
    return tmp_path_factory.mktemp("paper")


QUICK = ("figure-8", "table-11")
NAMES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in definitions()
]


@pytest.mark.parametrize("name", NAMES)
def test_every_definition_runs(name, out, monkeypatch):
    made = smoke(monkeypatch, name, out)
    assert made.rows
    assert [row["error"] for row in made.rows] == [None] * len(made.rows)
    stored = Results(out).files[name]
    assert stored == json.loads(json.dumps(made.rows))
    for row in stored:
        assert {"dataset", "scoring", "sampler", "mode", "settings", "seed"} <= set(row)
        assert {"version", "hardware", "seconds"} <= set(row)
        if row["kind"] == "train":
            assert {"mrr", "hits@10"} <= set(row["test"]) & set(row["valid"])
    assert bool(made.pictures) == name.startswith("figure")
    for picture in made.pictures:
        assert picture.name.startswith("smoke-")  # it must not pass for a result
        assert picture.read_text().startswith("<svg")
