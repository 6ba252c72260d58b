"""A share of the campaign of benchmarks/reliability: no crash, no silent difference."""

import importlib.util
import sys
from pathlib import Path

import pytest


def load_campaign():
    """Import the script, which is in no package."""
    file = Path(__file__).parents[2] / "benchmarks" / "reliability" / "fuzz_readers.py"
    spec = importlib.util.spec_from_file_location("fuzz_readers", file)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    return module


campaign = load_campaign()


@pytest.mark.parametrize("kind", campaign.FORMATS)
def test_mutated_files_are_read_right_or_refused(kind):
    found = campaign.run_cases(kind, first=0, count=60, seed=1)
    assert found["failures"] == []
    assert found["counts"]["equal"] >= 12  # those that were not mutated
    assert found["counts"]["refused"] > 0


def test_the_campaign_sees_a_reader_that_is_wrong(monkeypatch):
    load = campaign.load_graph

    def careless(path):
        graph = load(path)
        graph.train = graph.train[:, [2, 1, 0]]
        return graph

    monkeypatch.setattr(campaign, "load_graph", careless)
    assert campaign.run_cases("tab", first=0, count=10, seed=1)["counts"]["wrong"] > 0

    def broken(path):
        raise IndexError(path)

    monkeypatch.setattr(campaign, "load_graph", broken)
    assert campaign.run_cases("tab", first=0, count=5, seed=1)["counts"] == {"crashed": 5}
