import pytest

from .towns import towns_run


@pytest.fixture(scope="session")
def towns(tmp_path_factory):
    """A run on towns in a folder that no test changes."""
    return towns_run(tmp_path_factory.mktemp("towns") / "run")
