"""Skip this room where PyKEEN is not installed; keep its files away from the user's home."""

import gc
import os
import tempfile

import pytest

os.environ.setdefault("PYSTOW_HOME", tempfile.mkdtemp(prefix="pystow-"))
pytest.importorskip("pykeen", reason="needs PyKEEN: pip install 'nscaching[pykeen]'")


@pytest.fixture(autouse=True, scope="session")
def short_collections():
    """PyKEEN collects garbage after every epoch: what is loaded already need not be looked at."""
    gc.freeze()
    yield
    gc.unfreeze()
