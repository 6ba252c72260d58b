"""One thread: on graphs this small more threads only wait for each other."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    numba = pytest.importorskip("numba")
    numba_before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    numba.set_num_threads(numba_before)
