"""A budget in seconds: a run ends with the epoch in which they are used up."""

import pytest

from nscaching.sampling import SAMPLERS
from nscaching.training import loop
from nscaching.training.loop import Trainer
from nscaching.training.validation import Validation

from .helpers import go_on, ring, train


class Clock:
    """A clock that stands still but for what is said to take time."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        self._patch = monkeypatch
        monkeypatch.setattr(loop.time, "monotonic", lambda: self.now)

    def takes(self, owner, name, seconds):
        """Let every call of a method take so long."""
        method = getattr(owner, name)

        def slow(*args, **options):
            self.now += seconds
            return method(*args, **options)

        self._patch.setattr(owner, name, slow)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_the_epoch_in_which_seconds_are_used_up_is_the_last_and_is_validated(clock):
    clock.takes(Trainer, "_train_epoch", 5.0)
    clock.takes(Validation, "rank", 50.0)
    run = train(ring(), epochs=100, max_seconds=12, valid_every=2)
    assert run.summary["epochs"] == 3
    assert run.summary["valid"] is not None
    assert run.summary["seconds"] == 3 * 5 + 2 * 50  # validations are time, but not of the budget
    assert run.summary["seconds_per_epoch"] == 5


@pytest.mark.parametrize("pretrain_epochs", [0, 2])
def test_a_warm_start_is_part_of_the_seconds_of_a_run(clock, pretrain_epochs):
    clock.takes(Trainer, "_train_epoch", 1.0)
    options = {"sampler": "kbgan", "generator_epochs": 40, "pretrain_epochs": pretrain_epochs}
    run = train(ring(), epochs=3, valid_every=0, **options)
    assert run.summary["seconds"] == 40 + 3


def test_filling_the_caches_is_part_of_the_seconds_of_a_run(clock):
    clock.takes(SAMPLERS["nscaching"], "prepare", 7.0)
    assert train(ring(), valid_every=0).summary["seconds"] == 7


def test_more_seconds_prolong_a_run(tmp_path):
    first = train(ring(), out=tmp_path / "A", epochs=5, max_seconds=1e-6)
    assert first.summary["epochs"] == 1
    assert go_on(tmp_path / "A").summary["epochs"] == 1
    assert go_on(tmp_path / "A", max_seconds=1e3).summary["epochs"] == 5


def test_lines_of_progress_count_seconds_not_epochs(capsys):
    train(ring(), epochs=10**6, max_seconds=1e-6, progress="lines")
    said = capsys.readouterr().err
    assert "epoch 1  loss" in said
    assert "0.0 s left" in said


def test_the_time_left_is_not_guessed_from_an_epoch_that_compiled(clock, monkeypatch, capsys):
    clock.takes(Trainer, "_train_epoch", 20.0)
    real = Trainer._train_epoch

    def compile_first(trainer, *given):
        clock.now += 1000.0 if trainer.counters.epoch == 0 else 0.0
        return real(trainer, *given)

    monkeypatch.setattr(Trainer, "_train_epoch", compile_first)
    train(ring(), epochs=4, valid_every=0, progress="lines")
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("epoch")]
    assert said[1].endswith("40.0 s left")
