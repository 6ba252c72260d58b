"""The files that the pages speak of, small."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import nscaching as ns

from ..training.conftest import one_thread  # noqa: F401
from .snippets import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="session")
def desk(tmp_path_factory):
    """Make a folder with what a reader has at hand, and with a run for pages that ask for one."""
    desk = tmp_path_factory.mktemp("desk")
    for name in ("my-graph.tsv", "claims.tsv"):
        shutil.copy(EXAMPLES / name, desk)
    (desk / "examples").symlink_to(EXAMPLES)
    _write_nodes(desk)
    small = {"dim": 8, "progress": "none"}
    ns.train(desk / "my-graph.tsv", out=desk / "runs/mine", epochs=2, **small)
    ns.train("world", out=desk / "runs/world", epochs=1, valid_every=0, **small)
    return desk


def _write_nodes(desk: Path) -> None:
    """Two groups of nodes, dense inside and sparse between; "Aspirin" is one of them."""
    rng = np.random.default_rng(0)
    names = ["Aspirin", *(f"n{i}" for i in range(1, 40))]
    edges = [
        f"{names[i]}\t{names[j]}\n"
        for i in range(40)
        for j in range(i)
        if rng.random() < (0.4 if (i < 20) == (j < 20) else 0.02)
    ]
    (desk / "my-edges.txt").write_text("".join(edges))
    classes = (f"{name}\t{'left' if i < 20 else 'right'}\n" for i, name in enumerate(names))
    (desk / "my-classes.txt").write_text("".join(classes))


@pytest.fixture
def lay(desk, tmp_path, monkeypatch):
    """Go to a fresh folder that holds the named things of the desk and no named data sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NSCACHING_DATA", os.devnull)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))

    def put(names):
        for name in ["my-graph.tsv", "examples", "claims.tsv", "my-edges.txt", "my-classes.txt"]:
            (tmp_path / name).symlink_to(desk / name)
        for name in names:
            shutil.copytree(desk / name, tmp_path / name)

    return put
