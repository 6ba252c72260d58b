"""Time that is training, and several runs as one line."""

import numpy as np
import pytest

from nscaching.experiments.runs import Curve, band, read_curve, seconds_per_epoch


def epoch(number, seconds):
    return {"event": "epoch", "epoch": number, "loss": 1.0, "seconds": seconds}


def evaluation(number, seconds, mrr, split="valid"):
    values = {"mrr": mrr, "hits@10": mrr / 2}
    return {"event": "evaluation", "epoch": number, "split": split, "seconds": seconds, **values}


#: The first epoch takes 10 s, the others 2 s; a validation takes 5 s.
LINES = [
    epoch(1, 10.0),
    epoch(2, 12.0),
    evaluation(2, 5.0, 0.1),
    epoch(3, 19.0),
    epoch(4, 21.0),
    evaluation(4, 5.0, 0.2),
    evaluation(4, 50.0, 0.9, "test"),
]


def test_validations_are_not_counted_as_training():
    curve = read_curve(LINES)
    assert curve.epochs.tolist() == [2, 4]
    assert curve.seconds.tolist() == [12, 16]
    assert curve.mrr.tolist() == [0.1, 0.2]
    assert curve.hits_at_10.tolist() == [0.05, 0.1]


def test_an_epoch_is_one_of_the_sampler_itself_and_not_its_first():
    assert seconds_per_epoch(LINES, 0) == 2
    pretrained = [epoch(n, 100.0 * n) for n in (1, 2, 3)]
    pretrained += [epoch(4, 350.0), epoch(5, 360.0), epoch(6, 370.0)]
    assert seconds_per_epoch(pretrained, 3) == 10
    assert seconds_per_epoch([epoch(1, 3.0)], 0) == 3
    assert seconds_per_epoch([], 0) is None


def curve_of(epochs, mrr, seconds):
    arrays = (np.array(values, dtype=float) for values in (epochs, seconds, mrr, mrr))
    return Curve(*arrays)


def test_runs_are_brought_together_where_all_have_been():
    line = band(
        "x", [curve_of([1, 2, 3], [0.1, 0.2, 0.9], [1, 2, 3]), curve_of([1, 2], [0.3, 0.4], [3, 6])]
    )
    assert line.epochs.tolist() == [1, 2]
    assert line.seconds.tolist() == [2, 4]
    assert line.mean["mrr"].tolist() == pytest.approx([0.2, 0.3])
    assert (line.low["mrr"].tolist(), line.high["mrr"].tolist()) == ([0.1, 0.2], [0.3, 0.4])


def test_without_validations_there_is_no_line():
    assert band("x", [read_curve([epoch(1, 1.0)])]) is None
    assert band("x", []) is None
