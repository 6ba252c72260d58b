"""A loss that is no number stops the run; the last good checkpoint stays."""

import pytest
import torch
from safetensors.torch import load_file

import nscaching as ns
from nscaching import TrainingDiverged
from nscaching.training.step import TrainingStep

from .helpers import ring, train

SETTINGS = {"scoring": "distmult", "sampler": "uniform", "checkpoint_seconds": 0}


def break_after(monkeypatch, steps):
    """Let the steps after so many return a loss that is no number, and spoil the tables."""
    original, taken = TrainingStep.__call__, []

    def step(self, *seen):
        taken.append(1)
        loss = original(self, *seen)
        if len(taken) > steps:
            self.model.entity.fill_(torch.nan)
            loss = loss * torch.nan
        return loss

    monkeypatch.setattr(TrainingStep, "__call__", step)


def test_the_last_good_checkpoint_stays_and_resumes(tmp_path, monkeypatch):
    folder = tmp_path / "R"
    graph = ring()  # 70 training triples: 5 steps of 16
    break_after(monkeypatch, steps=12)
    with pytest.raises(TrainingDiverged, match="checkpoint is kept") as caught:
        train(graph, epochs=6, out=folder, **SETTINGS)
    assert "smaller lr" in str(caught.value)
    state = load_file(folder / "checkpoint" / "state.safetensors")
    assert all(tensor.isfinite().all() for tensor in state.values())
    assert torch.isfinite(ns.load_run(folder, "cpu").model.entity).all()
    monkeypatch.undo()
    resumed = train(graph, out=folder, resume=True, epochs=6, **SETTINGS)
    assert resumed.summary["epochs"] == 6


def test_the_best_model_is_kept_though_no_checkpoint_was_due(tmp_path, monkeypatch):
    folder, rare = tmp_path / "R", {**SETTINGS, "checkpoint_seconds": 1000, "valid_every": 1}
    whole = train(ring(), epochs=2, **rare)
    break_after(monkeypatch, steps=12)  # in the third epoch of five steps
    with pytest.raises(TrainingDiverged, match=r"The best model, of epoch [12], is .*model\.safe"):
        train(ring(), epochs=6, out=folder, **rare)
    monkeypatch.undo()
    kept = ns.load_run(folder, "cpu").model
    assert torch.equal(kept.entity, whole.model.entity)


def test_a_huge_learning_rate_diverges_with_a_sentence(tmp_path):
    with pytest.raises(TrainingDiverged, match=r"The loss is (nan|inf) after epoch"):
        train(ring(), epochs=5, lr=1e30, out=tmp_path / "R", **SETTINGS)


def test_parameters_that_are_no_numbers_never_reach_a_checkpoint(tmp_path, monkeypatch):
    original = TrainingStep.__call__

    def step(self, *seen):
        loss = original(self, *seen)
        self.model.entity[0] = torch.nan
        return torch.zeros_like(loss)

    monkeypatch.setattr(TrainingStep, "__call__", step)
    with pytest.raises(TrainingDiverged, match="parameters are not numbers"):
        train(ring(), epochs=2, out=tmp_path / "R", **SETTINGS)
    assert not (tmp_path / "R" / "model.safetensors").exists()
