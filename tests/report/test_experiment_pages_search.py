"""The page of a search."""

import shlex
from dataclasses import replace

import pytest

pytest.importorskip("smac")

import nscaching as ns
from nscaching.experiments.tune.optimiser import Effect, Importance
from nscaching.experiments.tune.trials import SearchFolder
from nscaching.report.experiment_pages import search_page

from ..cli.helpers import invoke
from ..experiments.tune.helpers import untimed_result
from .reading import read

SMALL = {"dim": 4, "epochs": 2, "batch_size": 32, "device": "cpu", "valid_every": 1}


@pytest.fixture(scope="module")
def result(tmp_path_factory, data):
    out = tmp_path_factory.mktemp("runs") / "T"
    return ns.tune(str(data), out=out, trials=8, progress="none", **SMALL)


@pytest.fixture(scope="module")
def found(result):
    page = (result.folder.path / "report.html").read_text(encoding="utf-8")
    assert result.report == str(result.folder.path / "report.html")
    assert len(page.encode()) < 150_000
    return read(page)


def test_every_trial_and_the_best_settings_are_there(result, found):
    assert "All trials, the best first" in found.words
    chosen = [a for tag, a in found.tags if tag == "tr" and a.get("class") == "chosen"]
    assert len(chosen) == 1
    assert f"Found in trial{result.best.number} of 8" in found.words
    assert f"{result.best.score:.3f}" in found.words
    assert f"nscaching train --config {result.folder.best}" in found.words
    assert found.count("tr") >= 1 + 8


def test_what_mattered_is_drawn_on_one_scale(result):
    effects = [Effect(name, 0.2, 0.3, [0, 1], [0.1, 0.2]) for name in ("alpha1", "alpha3")]
    fitted = replace(result, importance=Importance(effects, 0.4, 8, 2), importance_note=None)
    found = read(search_page(fitted))
    assert all(f"Predicted MRR over {effect.name}" in found.words for effect in effects)
    assert "0.40 of the variance (cross-validated R²)" in found.words


def test_what_the_fit_does_not_support_is_a_sentence(result):
    page = search_page(replace(result, importance=None, importance_note="It cannot be told."))
    assert "It cannot be told." in read(page).words
    assert "Predicted MRR over" not in read(page).words


def test_names_in_a_search_do_not_bite(result):
    evil = "</script><script>alert(1)</script>"
    trials = [replace(trial, error=evil, status="failed") for trial in result.trials[1:]]
    base = replace(result.base, data=evil)
    page = search_page(replace(result, base=base, trials=[result.trials[0], *trials]))
    assert evil not in page
    assert "<script>alert" not in page
    assert "alert(1)" in read(page).words


@pytest.mark.parametrize("alpha3", [1.0, 4.0], ids=["flags", "base"])
def test_the_command_repeats_the_search(tmp_path, data, alpha3):
    """Where the first trial stands elsewhere than by default, no flag can say so."""
    options = tmp_path / "base.yaml"
    options.write_text(f"alpha3: {alpha3}\nlr: 0.01\n")
    asked = {"base": options, "trials": 2, "method": "random", **SMALL}
    result = ns.tune(str(data), out=tmp_path / "first", progress="none", **asked)
    based = alpha3 != 1.0
    page = read((result.folder.path / "report.html").read_text(encoding="utf-8")).words
    line = page[page.index("nscaching tune") : page.index("CopyVersions")]
    assert ("--base" in line) == based
    again = tmp_path / "again"
    outcome = invoke(*shlex.split(line)[1:], "--out", again, "--quiet", "--json")
    assert outcome.code == 0, outcome.stderr
    before, after = SearchFolder(result.folder.path), SearchFolder(again)
    assert after.read()[0] == before.read()[0]
    same = ns.tune(out=again, resume=True, progress="none")
    assert untimed_result(same) == untimed_result(result)
    assert same.config == result.config
