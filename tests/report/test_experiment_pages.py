"""Learning curves of several runs, and the page of a comparison."""

import numpy as np
import pytest

import nscaching as ns
from nscaching.experiments.comparison import Comparison
from nscaching.experiments.runner import RunResult
from nscaching.report.experiment_pages import (
    comparison_charts,
    comparison_page,
    read_curve,
    together,
)

from ..training.helpers import ring
from .reading import read

SMALL = {"dim": 4, "batch_size": 16, "device": "cpu", "epochs": 2, "valid_every": 1}


@pytest.fixture(scope="module")
def made(tmp_path_factory, data):
    out = tmp_path_factory.mktemp("runs") / "C"
    samplers = "uniform,nscaching:alpha3=2"
    return ns.compare(str(data), samplers, seeds=[0, 1], out=out, progress="none", **SMALL)


def test_it_is_written_with_every_row_and_curve(made):
    assert made.report == "report.html"
    page = (made.out / made.report).read_text(encoding="utf-8")
    found = read(page)
    assert len(page.encode()) < 150_000
    for row in made.rows:
        assert row["sampler"] in found.words
        assert f"{row['mrr']:.4f} ± {row['mrr_spread']:.4f}" in found.words
    assert page.count('class="chart"') == 4
    assert page.count('class="line s1"') == 8  # a line and its legend in each
    assert "seeds 0, 1" in found.words


def test_the_command_names_everything(made, data):
    words = read((made.out / "report.html").read_text(encoding="utf-8")).words
    expected = f"nscaching compare {data} --samplers uniform,nscaching:alpha3=2 --seeds 0,1 --dim 4"
    assert expected in words
    assert f"nscaching report {made.out / 'uniform-seed0'}" in words


def test_failures_are_told_and_names_do_not_bite(tmp_path):
    failed = RunResult("uniform", 0, "uniform-seed0", "", error="<script>no</script> memory")
    name = "a/<b>graph</b>.tsv"
    comparison = Comparison(tmp_path, name, "transe", ["uniform"], [0], {"dim": 3}, [failed])
    found = read(comparison_page(comparison, {}))
    assert "uniform failed, seed 0: <script>no</script> memory" in found.words
    assert "<b>graph" in found.words or "b>.tsv" in found.words
    assert "No run validated" in found.words


def test_a_budget_of_seconds_is_not_told_as_a_million_epochs(data, tmp_path):
    small = {**SMALL, "max_seconds": 0.01}
    del small["epochs"]
    made = ns.compare(str(data), "uniform", out=tmp_path / "C", progress="none", **small)
    assert "epochs" not in made.options
    again = ns.compare(out=tmp_path / "C", resume=True, progress="none")
    assert again.runs == made.runs
    words = read((made.out / "report.html").read_text(encoding="utf-8")).words
    assert "--max-seconds 0.01" in words
    assert "1000000" not in words


def test_a_graph_made_in_python_has_no_command(tmp_path):
    made = ns.compare(ring(), "uniform", out=tmp_path / "C", progress="none", **SMALL)
    assert "made in Python" in (made.out / "report.html").read_text(encoding="utf-8")


def epoch(number, seconds):
    return {"event": "epoch", "epoch": number, "loss": 1.0, "seconds": seconds}


def evaluation(number, seconds, mrr, split="valid"):
    values = {"mrr": mrr, "hits@10": mrr / 2}
    return {"event": "evaluation", "epoch": number, "split": split, "seconds": seconds, **values}


#: The first epoch takes 10 s, the others 2 s; a validation takes 5 s.
LINES = [
    epoch(1, 10.0),
    epoch(2, 12.0),
    evaluation(2, 5.0, 0.1),
    epoch(3, 19.0),
    epoch(4, 21.0),
    evaluation(4, 5.0, 0.2),
    evaluation(4, 50.0, 0.9, "test"),
]


def test_validations_are_not_counted_as_training():
    curve = read_curve(LINES)
    assert curve["epochs"].tolist() == [2, 4]
    assert curve["seconds"].tolist() == [12, 16]
    assert curve["mrr"].tolist() == [0.1, 0.2]
    assert curve["hits_at_10"].tolist() == [0.05, 0.1]


def curve_of(epochs, mrr, seconds):
    columns = {"epochs": epochs, "seconds": seconds, "mrr": mrr, "hits_at_10": mrr}
    return {name: np.array(values, dtype=float) for name, values in columns.items()}


def test_runs_are_brought_together_where_all_have_been():
    runs = [curve_of([1, 2, 3], [0.1, 0.2, 0.9], [1, 2, 3]), curve_of([1, 2], [0.3, 0.4], [3, 6])]
    over_seconds, over_epochs, *_ = comparison_charts({"x": together(runs)})
    (line,), (other,) = over_seconds.series, over_epochs.series
    assert other.x == [1, 2]
    assert line.x == [2, 4]
    assert line.y == pytest.approx([0.2, 0.3])
    assert (line.low, line.high) == ([0.1, 0.2], [0.3, 0.4])


def test_without_validations_there_is_no_line():
    assert together([read_curve([epoch(1, 1.0)])]) is None
    assert together([]) is None
