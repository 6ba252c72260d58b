"""A preset in a run: what is stored repeats it, and what does not fit is refused."""

import pytest

import nscaching as ns
from nscaching.training import RunFolder, TrainConfig, memory
from nscaching.training.memory import plan_memory

from .helpers import bits, go_on, ring, train

ENTITIES = 30


def test_the_stored_configuration_holds_the_values_and_repeats_the_run(tmp_path):
    run = train(ring(), out=tmp_path / "A", preset="kbgan", alpha2=2.0)
    config = RunFolder(tmp_path / "A").read_config()
    assert (config.preset, config.alpha2, config.alpha3) == ("kbgan", 2.0, 0.0)
    assert config.candidates == ENTITIES
    again = train(ring(), config=tmp_path / "A" / "config.yaml", epochs=run.config.epochs)
    assert bits(again) == bits(run)
    plain = train(ring(), alpha2=2.0, alpha3=0.0, candidates=ENTITIES)
    assert bits(plain) == bits(run)


def test_a_preset_by_keyword_wins_over_the_values_of_a_file(tmp_path):
    train(ring(), out=tmp_path / "A", preset="kbgan")
    config = train(ring(), config=tmp_path / "A" / "config.yaml", preset="igan").config
    assert (config.preset, config.cache_size, config.candidates) == ("igan", ENTITIES, 0)


def test_a_run_with_a_preset_goes_on(tmp_path):
    train(ring(), out=tmp_path / "A", preset="igan", epochs=1)
    assert go_on(tmp_path / "A", epochs=2, preset="igan").summary["epochs"] == 2
    with pytest.raises(ns.UserError, match="was started with preset igan, not kbgan"):
        go_on(tmp_path / "A", preset="kbgan")


def test_unknown_presets_and_other_samplers_are_refused():
    with pytest.raises(ns.UserError, match=r"preset must be one of .*; did you mean 'kbgan'"):
        train(ring(), preset="kgban")
    with pytest.raises(ns.UserError, match="not of uniform"):
        train(ring(), preset="igan", sampler="uniform")


def test_caches_that_do_not_fit_are_refused_before_they_are_made(tmp_path, monkeypatch):
    config = TrainConfig(preset="igan", cache_size=ENTITIES, candidates=0, device="cpu")
    parts, rows = plan_memory(ring(), config).parts, ring().rows
    needed = parts["caches"] + parts["places of rows"]
    assert needed == (len(rows.head.anchor) + len(rows.tail.anchor)) * (ENTITIES * 6 + 8)
    monkeypatch.setattr(memory, "free_bytes", lambda device: needed - 1)
    with pytest.raises(ns.UserError, match=r"cache_size 30.* are free. Bound the caches"):
        train(ring(), preset="igan", out=tmp_path / "A")
    assert not (tmp_path / "A").exists()
    assert train(ring(), sampler="uniform").summary["epochs"] == 2
    monkeypatch.setattr(memory, "free_bytes", lambda device: None)  # a system that does not say
    assert train(ring(), preset="igan").summary["epochs"] == 2
