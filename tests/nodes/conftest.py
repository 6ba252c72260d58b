import os
from pathlib import Path

import pytest


@pytest.fixture
def need_data():
    """Skip a test where a named graph is not on this machine."""

    def check(name):
        folders = os.environ.get("NSCACHING_DATA", "").split(os.pathsep)
        if not any((Path(folder) / name / "labels.txt").is_file() for folder in folders if folder):
            pytest.skip(f"{name} is not below NSCACHING_DATA")

    return check
