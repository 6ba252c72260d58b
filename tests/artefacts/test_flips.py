"""A byte of a run folder that changes is noticed, whichever it is."""

import importlib.util
from pathlib import Path

import pytest

from ..training.helpers import ring, train

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "reliability" / "flip_bytes.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("flip_bytes", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_flipped_byte_loads_equal_or_is_refused(tmp_path, script):
    train(ring(), out=tmp_path / "R", epochs=1, dim=4, trace=True)
    counted = script.campaign(tmp_path / "R", flips=225, seed=1)
    assert counted["failures"] == []
    refused = {name: found.get("refused", 0) for name, found in counted["files"].items()}
    for name in script.FILES[2:]:
        assert refused[name] > 18, counted
    for name in script.DIAGNOSTIC:
        assert refused[name] == 0, counted


@pytest.mark.slow
def test_the_campaign_notices_what_is_silent(tmp_path, script, monkeypatch):
    """Without digests it finds failures: it is no empty promise."""
    monkeypatch.setattr("nscaching.artefacts.files.tensor_digest", lambda *_: "always the same")
    train(ring(), out=tmp_path / "R", epochs=1, dim=4)
    monkeypatch.setattr(script, "FILES", ("model.safetensors",))
    monkeypatch.setattr(script, "DIAGNOSTIC", ())
    counted = script.campaign(tmp_path / "R", flips=12, seed=0)
    assert {failure["outcome"] for failure in counted["failures"]} == {"silent"}
