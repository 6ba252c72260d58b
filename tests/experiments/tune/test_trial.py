"""A trial on its share of the cores."""

import numba
import pytest
import torch

from nscaching.experiments.tune.trial import _threads


@pytest.mark.parametrize("count", [0, 1])
def test_threads_are_as_before_after_a_trial(count):
    before = torch.get_num_threads(), numba.get_num_threads()
    most = numba.config.NUMBA_NUM_THREADS
    torch.set_num_threads(2)
    numba.set_num_threads(most)
    try:
        with _threads(count):
            assert torch.get_num_threads() == (count or 2)
            assert numba.get_num_threads() == min(count or 2, most)
        assert (torch.get_num_threads(), numba.get_num_threads()) == (2, most)
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])
