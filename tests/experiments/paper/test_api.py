"""Planning, skipping what is done, resuming, and data that is missing."""

import pytest
import yaml

from nscaching.errors import TrainingInterrupted, UserError
from nscaching.experiments.paper import api, definition, making, reproduce
from nscaching.experiments.paper.definitions import Cell
from nscaching.experiments.paper.expected import Sizes, cost_of
from nscaching.experiments.paper.making import search_row, shape_of
from nscaching.experiments.paper.plan import (
    MISSING,
    Request,
    cell_settings,
    run_folder,
)
from nscaching.experiments.paper.results import Results, blank_row
from nscaching.experiments.runner import DONE, FAILED, STOPPED, WAITING
from nscaching.training import Progress, TrainConfig

from ...training.helpers import few_valid_facts
from .helpers import request

CELL = {"dataset": ["WN18RR"], "scoring": ["simple"], "mode": ["scratch"]}
TWO = {**CELL, "sampler": ["bernoulli", "nscaching"], "on": "shape/400"}


def run(out, name="table-7", **asked):
    return reproduce(name, request(name, out, **{**TWO, **asked}), progress="none")


@pytest.fixture
def made_runs(monkeypatch):
    """List the folders that are trained."""
    calls = []
    itself = making.train_row

    def counted(cell, settings, graph, folder, *args, **options):
        calls.append(folder.name)
        return itself(cell, settings, graph, folder, *args, **options)

    monkeypatch.setattr(making, "train_row", counted)
    return calls


def test_what_is_done_is_skipped_also_by_another_table(tmp_path, made_runs):
    first = run(tmp_path)
    assert [planned.state for planned in first.plan] == [WAITING, WAITING]
    assert len(made_runs) == 2
    again = run(tmp_path)
    assert [planned.state for planned in again.plan] == [DONE, DONE]
    assert again.rows == first.rows
    other = run(tmp_path, "table-8")  # the same runs, looked at in another way
    assert other.rows == first.rows
    assert len(made_runs) == 2


def test_other_settings_are_run_again(tmp_path, made_runs):
    run(tmp_path, sampler=["bernoulli"])
    run(tmp_path, sampler=["bernoulli"], budget=3)
    assert len(made_runs) == 2
    budgets = [row["budget"] for row in Results(tmp_path).rows]
    assert budgets == [2, 3]


def test_a_longer_run_counts_for_a_shorter_one(tmp_path, made_runs):
    run(tmp_path, sampler=["bernoulli"], budget=3)
    assert run(tmp_path, sampler=["bernoulli"], budget=1).rows[0]["budget"] == 3
    assert len(made_runs) == 1


def test_a_smoke_run_never_takes_the_place_of_a_result(tmp_path):
    run(tmp_path, sampler=["bernoulli"])
    (row,) = Results(tmp_path).rows
    real = {**row, "on": None, "budget": None, "test": {"mrr": 0.9, "hits@10": 0.9}}
    Results(tmp_path).keep("table-7", [real])
    run(tmp_path, sampler=["bernoulli"], budget=1)
    assert real in Results(tmp_path).rows


@pytest.mark.slow
def test_a_stopped_cell_goes_on_and_the_finished_stay(tmp_path, monkeypatch):
    from nscaching.training.loop import Trainer

    itself = Trainer._report_epoch

    def stop(trainer, loss, bar):
        itself(trainer, loss, bar)
        if trainer.config.sampler == "nscaching":
            trainer._stop_here(15)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_report_epoch", stop)
        with pytest.raises(TrainingInterrupted, match="1 of 2 cells finished") as stopped:
            run(tmp_path)
    command = str(stopped.value).split("Resume with:")[1].split()
    assert command[:3] == ["nscaching", "reproduce", "table-7"]
    assert command[command.index("--out") + 1] == str(tmp_path)
    assert command[command.index("--on") + 1] == "shape/400"
    again = run(tmp_path)
    assert [planned.state for planned in again.plan] == [DONE, STOPPED]
    straight = run(tmp_path / "straight")
    assert again.rows[1]["test"] == straight.rows[1]["test"]
    assert [row["epochs"] for row in again.rows] == [2, 2]


def test_seeds_are_cells_of_their_own(tmp_path):
    made = run(tmp_path, sampler=["bernoulli"], seeds=[3, 4])
    assert [row["seed"] for row in made.rows] == [3, 4]
    assert made.rows[0]["test"] != made.rows[1]["test"]


def test_data_that_is_not_has_data_is_a_row_that_says_so(tmp_path, monkeypatch):
    from nscaching.graph import loading

    def nowhere(name, **options):
        raise UserError(f"The data set {name} could not be downloaded.")

    monkeypatch.setattr(loading, "fetch_dataset", nowhere)
    monkeypatch.setenv("NSCACHING_DATA", "")
    monkeypatch.setenv("NSCACHING_CACHE", str(tmp_path / "cache"))
    made = run(tmp_path, dataset=["YAGO3-10"], on=None)
    assert {planned.state for planned in made.plan} == {MISSING}
    assert made.expected_seconds == 0
    assert all(row["missing"] and "could not be downloaded" in row["error"] for row in made.rows)


@pytest.mark.slow
def test_yago_is_defined_rightly_as_a_graph_of_its_shape_shows(tmp_path):
    whole = shape_of("YAGO3-10", 1000)
    assert (whole.num_entities, whole.num_relations) == (123, 37)
    assert len(whole.train) == pytest.approx(1079, abs=5)
    made = run(tmp_path, dataset=["YAGO3-10"], on="shape/1000", mode=["scratch", "auto"])
    assert [row["error"] for row in made.rows] == [None] * 3
    auto = made.rows[-1]["settings"]
    assert (auto["alpha2"], auto["cache_size"]) == (16.62, 70)


def test_a_dry_run_plans_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("nscaching.experiments.paper.plan.has_data", lambda *given: True)
    asked = Request(out=tmp_path / "no", dataset=["WN18RR"], device="cpu")
    made = reproduce("table-7", asked, dry_run=True, progress="none")
    assert len(made.plan) == 37
    assert made.expected_seconds > 0
    assert not (tmp_path / "no").exists()


def test_time_is_corrected_by_what_was_timed_here(tmp_path):
    first = run(tmp_path, sampler=["bernoulli"]).plan[0]
    (row,) = Results(tmp_path).rows
    took = first.cost.start + 10 * first.cost.work  # a start takes as long beside others
    Results(tmp_path).keep("table-7", [{**row, "wall": took, "seconds": 0.0}])
    later = run(tmp_path, sampler=["nscaching"]).plan[0]
    assert later.seconds == pytest.approx(later.cost.start + 10 * later.cost.work)
    assert first.seconds == first.cost.seconds(1.0)


def test_a_time_is_called_rough_until_a_cell_was_timed_here(tmp_path):
    first = run(tmp_path, sampler=["bernoulli"])
    assert first.caveat == " (rough: no cell was timed on this machine yet)"
    later = run(tmp_path, sampler=["nscaching"])
    assert (first.timed_here, later.timed_here) == (False, True)
    assert later.caveat == ""


def test_distances_with_caches_take_longer_on_a_cpu():
    settings = {"epochs": 10, "dim": 100, "batch_size": 1024, "valid_every": 100}
    sizes = Sizes(train=100_000, valid=0, entities=1000)

    def seconds(scoring, sampler, device):
        cell = Cell("WN18RR", scoring, sampler)
        return cost_of(cell, settings, sizes, device).work

    slow, fast = (seconds(scoring, "nscaching", "cpu") for scoring in ("transd", "simple"))
    assert 1.5 * fast < slow < 4 * fast
    for sampler, device in (("bernoulli", "cpu"), ("nscaching", "cuda")):
        assert seconds("transd", sampler, device) == seconds("simple", sampler, device)


def test_smoke_runs_and_whole_runs_have_folders_apart(tmp_path):
    cell = api.definition("table-7").cells(**CELL, sampler=["nscaching"])[0]
    folders = {
        run_folder(Request(out=tmp_path, **asked), cell)
        for asked in ({}, {"budget": 2}, {"on": "world"}, {"on": "world", "budget": 2})
    }
    assert len(folders) == 4
    assert all(folder.is_relative_to(tmp_path / "runs") for folder in folders)


def test_damaged_results_are_named(tmp_path):
    (tmp_path / "table-7.json").write_text('[{"dataset": "WN18RR"}]')
    with pytest.raises(UserError, match=r"table-7\.json is not a list of results"):
        run(tmp_path)


def search_cell(out, **asked):
    (cell,) = definition("table-9").cells(dataset=["FB15K-237"])
    return cell, {**cell_settings(cell, request("table-9", out, **asked)), "dim": 4}


def test_a_search_does_not_go_on_under_other_settings(tmp_path):
    cell, settings = search_cell(tmp_path, budget=1, trials=1)
    graph = shape_of("FB15K-237", 400)
    first = search_row(cell, settings, graph, tmp_path, Progress("none"))
    assert first["search"]["space"] == "sampler+"
    assert "rescale" in first["search"]["best"]
    search_row(cell, {**settings, "trials": 2}, graph, tmp_path, Progress("none"))
    for other in ({"space": "sampler"}, {"trial": {"lr": 0.5}}):
        with pytest.raises(UserError, match="begun with other settings"):
            search_row(cell, {**settings, **other}, graph, tmp_path, Progress("none"))


def test_a_search_that_named_its_split_is_resumed(tmp_path):
    cell, settings = search_cell(tmp_path, budget=1, trials=1)
    graph = shape_of("FB15K-237", 400)
    search_row(cell, settings, graph, tmp_path, Progress("none"))
    base = tmp_path / "search" / "base" / "config.yaml"
    base.write_text(base.read_text().replace("split: null", "split: 0.05"))
    row = search_row(cell, {**settings, "trials": 2}, graph, tmp_path, Progress("none"))
    assert row["search"]["trials"] == 2


@pytest.mark.parametrize("asked", [{}, {"name": "table-9", "sampler": (), "trials": 1}])
def test_all_of_valid_is_ranked_whatever_a_recipe_would_draw(tmp_path, monkeypatch, asked):
    few_valid_facts(monkeypatch, 2)
    table = {"dataset": ["WN18RR"], "mode": [], **asked}
    made = run(tmp_path, **{"sampler": ["bernoulli"], **table})
    size = len(shape_of("WN18RR", 400).valid)
    assert {row["valid"]["count"] for row in made.rows} == {2 * size}
    configs = list(tmp_path.glob("runs/**/config.yaml"))
    assert {TrainConfig.from_file(each).valid_facts for each in configs} == {None}


def test_a_whole_search_counts_for_a_shorter_one(tmp_path):
    cell, settings = search_cell(tmp_path, budget=None)
    row = {**blank_row(cell, settings), "error": None, "on": "shape/400"}
    Results(tmp_path).keep("table-9", [row])
    cell, shorter = search_cell(tmp_path, budget=3)
    assert shorter["trial"]["epochs"] == 3
    assert Results(tmp_path).find(cell, shorter, "shape/400") is not None


def test_a_cell_that_failed_is_tried_again(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(making, "train_row", lambda *args, **options: 1 / 0)
        first = run(tmp_path, sampler=["bernoulli"])
    assert first.rows[0]["error"] == "ZeroDivisionError: division by zero"
    again = run(tmp_path, sampler=["bernoulli"])
    assert [planned.state for planned in again.plan] == [FAILED]
    assert again.rows[0]["error"] is None
    assert [row["error"] for row in Results(tmp_path).rows] == [None]


def test_the_first_trial_of_a_search_is_the_papers(tmp_path):
    cell, settings = search_cell(tmp_path, budget=1, trials=1)
    row = search_row(cell, settings, shape_of("FB15K-237", 400), tmp_path, Progress("none"))
    found = row["search"]["best"]
    assert [found[f"alpha{n}"] for n in (1, 2, 3)] == [0, 0, 0]
    assert (found["cache_size"], found["candidates"]) == (50, 50)


def test_a_search_of_the_first_version_is_resumed(tmp_path):
    """Its base had the default temperatures, and search.yaml fewer keys."""
    cell, settings = search_cell(tmp_path, budget=1, trials=1)
    graph = shape_of("FB15K-237", 400)
    first = search_row(cell, settings, graph, tmp_path, Progress("none"))
    base, search = (tmp_path / "search" / name for name in ("base/config.yaml", "search.yaml"))
    base.write_text(base.read_text().replace("alpha3: 0.0", "alpha3: 1.0"))
    stored = yaml.safe_load(search.read_text())
    for name in ("first", "seconds"):
        del stored[name]
    search.write_text(yaml.safe_dump(stored))
    again = search_row(cell, settings, graph, tmp_path, Progress("none"))
    assert again["search"] == first["search"]
