"""The scripts of examples/ run as they stand, and what they print is what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .snippets import ROOT

SCRIPTS = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def printed(script):
    """Run a script; one thread, since on a busy machine two wait for each other."""
    alone = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{script}.py"],
        env={**os.environ, **alone},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(pattern, text):
    found = re.search(pattern, text)
    assert found, text
    return [float(number) for number in found.groups()]


@pytest.mark.slow
def test_own_graph():
    text = printed("own_graph")
    mrr, guess = numbers(r"MRR ([\d.]+) \(a guess: ([\d.]+)\)", text)
    assert mrr > 5 * guess
    assert re.search(r" · .+ \(\d+%\)\n", text)
    assert not re.search(r" · \n", text)
    assert "vectors.names.txt" in text


@pytest.mark.slow
def test_drug_repurposing_finds_what_was_planted():
    text = printed("drug_repurposing")
    assert text.startswith("SYNTHETIC")
    place, chance = numbers(r"mean place +([\d.]+) +by chance +([\d.]+)", text)
    assert place < chance / 3


@pytest.mark.slow
def test_the_classifier_is_better_than_the_largest_class():
    right, largest = numbers(
        r"right: (\d+)%; .* would be (\d+)%", printed("classifier_on_embeddings")
    )
    assert right > 2 * largest


@pytest.mark.slow
def test_our_sampler_runs_in_the_pipeline_of_pykeen():
    pytest.importorskip("pykeen", reason="pykeen is not installed: pip install 'nscaching[pykeen]'")
    (mrr,) = numbers(r"nscaching +([\d.]+)", printed("pykeen_pipeline"))
    assert mrr > 0.05  # a guess is far below


def test_every_script_is_run_and_listed():
    tested = {name for name in SCRIPTS if f'"{name}"' in Path(__file__).read_text("utf-8")}
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert tested == set(SCRIPTS)
    assert all(f"`{name}.py`" in listed for name in SCRIPTS)
