"""A large graph within 8 GB, and a real data set where it is present."""

import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from nscaching.graph import find_dataset

from ..training.helpers import run_command

#: Runs the command given and prints the most memory its process held, in bytes, on stderr.
WATCH = """
import resource, subprocess, sys
code = subprocess.call([sys.executable, "-m", "nscaching", *sys.argv[1:]])
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, file=sys.stderr)
sys.exit(code)
"""
ENTITIES, RELATIONS, TRIPLES = 100_000, 40, 400_000


def run_watched(*arguments):
    """Run a command; return its JSON and the most memory it held, in GB."""
    done = subprocess.run(
        [sys.executable, "-c", WATCH, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), int(done.stderr.rsplit("peak ", 1)[1]) / 1e9


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "RUSAGE_CHILDREN"), reason="no getrusage here")
def test_a_hundred_thousand_entities_fit_into_8_gb(tmp_path):
    rng = np.random.default_rng(0)
    columns = [rng.integers(n, size=TRIPLES) for n in (ENTITIES, RELATIONS, ENTITIES)]
    columns[0][:ENTITIES] = np.arange(ENTITIES)
    lines = [f"e{h}\tr{r}\te{t}\n" for h, r, t in zip(*columns, strict=True)]
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "train.txt").write_text("".join(lines[:-1000]))
    (folder / "valid.txt").write_text("".join(lines[-1000:-500]))
    (folder / "test.txt").write_text("".join(lines[-500:]))
    settings = ["--sampler", "nscaching", "--dim", 32, "--epochs", 1, "--out", tmp_path / "R"]
    summary, trained = run_watched("train", folder, *settings, "--device", "cpu", "--json")
    report, evaluated = run_watched("evaluate", tmp_path / "R", "--device", "cpu", "--json")
    print(f"peak memory: {trained:.2f} GB training, {evaluated:.2f} GB evaluating")
    assert max(trained, evaluated) < 8
    assert report["count"] == summary["test"]["count"] == 1000


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif(
    not os.environ.get("NSCACHING_DATA") or find_dataset("WN18RR") is None,
    reason="NSCACHING_DATA does not hold WN18RR",
)
def test_wn18rr_trains_and_evaluates(tmp_path):
    settings = ["--scoring", "transe", "--dim", 32, "--epochs", 2, "--lr", 0.01]
    out = ["--out", tmp_path / "R", "--json", "--quiet"]
    code, stdout, stderr = run_command(
        "train", "WN18RR", *settings, *out, OMP_NUM_THREADS="2", NUMBA_NUM_THREADS="2"
    )
    assert code == 0, stderr
    assert json.loads(stdout)["test"]["mrr"] > 0.01
