"""One small run for all tests that only read it; one thread, as the graphs are tiny."""

import pytest

from ..training.conftest import one_thread  # noqa: F401
from ..training.helpers import ring, train, write_folder


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return write_folder(ring(), tmp_path_factory.mktemp("graph") / "ring")


@pytest.fixture(scope="session")
def run(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("runs") / "R"
    train(data, out=folder, epochs=3, dim=4)
    return folder
