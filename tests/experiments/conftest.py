"""A tiny graph, and one thread for it."""

import pytest

from ..training.conftest import one_thread  # noqa: F401
from ..training.helpers import ring, write_folder


@pytest.fixture(scope="session")
def graph():
    return ring()


@pytest.fixture(scope="session")
def data(tmp_path_factory, graph):
    return write_folder(graph, tmp_path_factory.mktemp("graph") / "ring")
