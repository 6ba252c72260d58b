"""A budget in seconds: a run ends with the epoch in which they are used up."""

import time

from nscaching.training.loop import Trainer

from .helpers import go_on, ring, train


def slow_epochs(monkeypatch, seconds):
    """Let every epoch take so long at least, and every validation ten times as long."""
    train_epoch, evaluate = Trainer._train_epoch, Trainer.evaluate

    def slower(method, pause):
        def wrapped(*args, **options):
            time.sleep(pause)
            return method(*args, **options)

        return wrapped

    monkeypatch.setattr(Trainer, "_train_epoch", slower(train_epoch, seconds))
    monkeypatch.setattr(Trainer, "evaluate", slower(evaluate, 10 * seconds))


def test_the_epoch_in_which_seconds_are_used_up_is_the_last_and_is_validated(monkeypatch):
    train(ring(), epochs=1)  # kernels are loaded in the first epoch of all
    slow_epochs(monkeypatch, 0.05)
    run = train(ring(), epochs=100, max_seconds=0.12, valid_every=2)
    assert run.summary["epochs"] in (2, 3)  # 3, or 2 on a machine that is busy
    assert run.summary["valid"] is not None
    assert run.summary["seconds"] > 0.5  # the validations, which do not count


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
