import pytest

from nscaching.kernels.registry import forced

from ..conftest import kernel_forms


@pytest.fixture(params=kernel_forms())
def form(request):
    """Run a test with each form of the kernels: plain torch, the CPU's, and a GPU's."""
    with forced(request.param):
        yield request.param
