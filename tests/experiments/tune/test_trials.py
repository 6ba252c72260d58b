"""The incumbent's curve."""

import pytest

from nscaching.experiments.tune.trials import CurvePoint, Proposal, Trial, TrialResult


def test_curve_has_top1_and_top3_of_trials_not_of_answers():
    trials, points = {}, []
    told = [(1, None), (2, 0.3), (3, 0.1), (2, 0.5), (4, 0.2)]
    for step, (number, mrr) in enumerate(told, 1):
        trial = trials.setdefault(number, Trial(number, {}, {}, ""))
        trial.add(Proposal(number, {}, 9), TrialResult("failed" if mrr is None else "success", mrr))
        points.append(CurvePoint.of(trials.values(), 3 * step, 2.0 * step))
    assert points[0] is None
    assert [point.trials for point in points[1:]] == [2, 3, 3, 4]
    assert [(point.epochs, point.seconds) for point in points[1:3]] == [(6, 4.0), (9, 6.0)]
    assert [point.top1 for point in points[1:]] == [0.3, 0.3, 0.5, 0.5]
    assert [point.top3 for point in points[1:4]] == [None, None, None]
    assert points[4].top3 == pytest.approx((0.5 + 0.2 + 0.1) / 3)


def test_epochs_of_a_trial_that_began_anew_count_again():
    trial = Trial(1, {}, {}, "")
    answers = [(3, True), (5, False), (5, True)]
    results = [TrialResult("success", 0.1, epochs=epochs, anew=anew) for epochs, anew in answers]
    assert [trial.add(Proposal(1, {}, 9), result) for result in results] == [3, 2, 5]
