"""Reliability diagrams and their error."""

import numpy as np
import pytest

from nscaching.evaluation.reliability import expected_calibration_error, reliability_bins


def test_the_error_of_probabilities():
    chances = np.array([0.05, 0.05, 0.95, 0.95])
    bins = reliability_bins(chances, np.array([False, True, True, True]), bins=10)
    assert [part.count for part in bins] == [2, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert bins[0].true == 0.5
    assert expected_calibration_error(bins) == pytest.approx((2 * 0.45 + 2 * 0.05) / 4)
