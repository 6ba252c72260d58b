"""The incumbent's curve."""

import pytest

from nscaching.experiments.tune.trials import Proposal, SearchCurve, TrialResult


def test_curve_has_top1_and_top3_of_trials_not_of_answers():
    curve = SearchCurve()
    told = [(1, None, 2), (2, 0.3, 3), (3, 0.1, 3), (2, 0.5, 6), (4, 0.2, 3)]
    for number, mrr, trained in told:
        status = "success" if mrr is not None else "failed"
        curve.add(Proposal(number, {}, 9), TrialResult(status, score=mrr, seconds=2.0), trained)
    assert [point.trials for point in curve.points] == [2, 3, 3, 4]
    assert [point.epochs for point in curve.points] == [5, 8, 14, 17]
    assert [point.seconds for point in curve.points] == [4.0, 6.0, 8.0, 10.0]
    assert [point.top1 for point in curve.points] == [0.3, 0.3, 0.5, 0.5]
    assert [point.top3 for point in curve.points[:3]] == [None, None, None]
    assert curve.points[3].top3 == pytest.approx((0.5 + 0.2 + 0.1) / 3)
