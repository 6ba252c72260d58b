"""A search: trials are runs, failures are recorded, it goes on where it stopped."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

import nscaching as ns
from nscaching import TrainConfig, TrainingDiverged, TrainingInterrupted, UserError
from nscaching.artefacts import FolderLock
from nscaching.experiments.tune import api, objective
from nscaching.experiments.tune.search import Search, SearchFailed
from nscaching.experiments.tune.trials import RUNNING, SearchFolder
from nscaching.training import Progress, RunFolder, Trainer

from ...training.helpers import ring, write_folder
from .helpers import SMALL, search, untimed_result


@pytest.fixture(scope="module")
def whole(tmp_path_factory, graph):
    """A search that was never stopped; it has enough trials for importance."""
    folder = tmp_path_factory.mktemp("search") / "S"
    return search(graph, folder, trials=9, method="random")


def test_the_first_trial_is_the_default_and_all_configurations_differ(whole):
    assert whole.trials[0].config == {
        "alpha1": 0.0,
        "alpha2": 0.0,
        "alpha3": 1.0,
        "cache_size": 50,
        "candidates": 50,
    }
    assert len({str(trial.config) for trial in whole.trials}) == 9


def test_trials_are_runs_and_their_mrr_is_the_runs(whole, graph):
    for trial in whole.trials:
        run = ns.load_run(trial.run)
        assert {name: getattr(run.config, name) for name in trial.config} == trial.config
        assert run.graph.fingerprint == graph.fingerprint
        assert run.evaluate("valid").mrr == pytest.approx(trial.score)
        assert all(line.get("split") != "test" for line in RunFolder(trial.run).read_metrics())


def test_the_best_file_repeats_the_best_trial(whole, graph):
    assert whole.best.score == max(trial.score for trial in whole.trials)
    assert TrainConfig.from_file(whole.folder.best) == whole.config
    again = ns.train(graph, config=whole.folder.best, progress="none")
    assert again.summary["valid"]["mrr"] == whole.best.score


def test_only_the_best_checkpoint_is_kept(whole):
    kept = [trial for trial in whole.trials if RunFolder(trial.run).checkpoint.exists()]
    assert kept == [whole.best]


def test_a_checkpoint_that_a_killed_search_did_not_drop_is_dropped(graph, tmp_path):
    made = search(graph, tmp_path / "S", trials=2)
    (other,) = [trial for trial in made.trials if trial is not made.best]
    left, best = RunFolder(other.run).checkpoint, RunFolder(made.best.run).checkpoint
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(best.read_bytes())
    ns.tune(out=tmp_path / "S", resume=True, progress="none")
    assert best.exists()
    assert not left.exists()


def test_files_say_what_the_result_says(whole):
    stored = json.loads(whole.folder.result.read_text())
    assert stored == json.loads(json.dumps(whole.as_dict()))
    assert stored["best"]["mrr"] == whole.best.score
    assert stored["epochs"] == 9 * SMALL["epochs"]
    with whole.folder.table.open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["valid_mrr"]) for row in rows] == [trial.score for trial in whole.trials]
    for picture in whole.pictures:
        assert Path(picture).read_text().startswith("<svg")
    assert len(whole.pictures) == 1 + (whole.importance is not None)


def test_a_search_with_more_trials_goes_on(graph, tmp_path):
    short = search(graph, tmp_path / "S", trials=2)
    more = ns.tune(out=tmp_path / "S", resume=True, trials=3, progress="none")
    assert untimed_result(more)[:2] == untimed_result(short)
    assert len(more.trials) == 3
    once = ns.tune(out=tmp_path / "S", resume=True, trials=3, progress="none")
    assert untimed_result(once) == untimed_result(more)
    assert once.curve[-1].seconds == more.curve[-1].seconds  # nothing was trained


def stop_in_trial(number, monkeypatch):
    """Press Ctrl-C when a trial begins to train."""
    real = objective.make_trainer

    def make_trainer(*given, out, **named):
        if out.name == f"{number:03d}":
            raise KeyboardInterrupt
        return real(*given, out=out, **named)

    monkeypatch.setattr(objective, "make_trainer", make_trainer)


@pytest.mark.parametrize("method", [pytest.param("smac", marks=pytest.mark.slow), "smac-mf"])
def test_a_stopped_search_ends_with_the_same_trials(graph, tmp_path, method, monkeypatch):
    settings = {"trials": 6, "method": method, "epochs": 9}
    unbroken = search(graph, tmp_path / "whole", **settings)
    with monkeypatch.context() as patch:
        stop_in_trial(5, patch)
        with pytest.raises(TrainingInterrupted, match="tune --resume --out"):
            search(graph, tmp_path / "S", **settings)
    with (tmp_path / "S" / "trials.jsonl").open("a") as file:
        file.write('{"event": "answ')  # what a killed process half wrote
    resumed = ns.tune(out=tmp_path / "S", resume=True, progress="none")
    assert untimed_result(resumed) == untimed_result(unbroken)
    untimed_curves = [
        [(point.trials, point.epochs, point.top1, point.top3) for point in result.curve]
        for result in (resumed, unbroken)
    ]
    assert untimed_curves[0] == untimed_curves[1]


def test_multi_fidelity_trains_less_and_ends_as_a_whole_run_would(graph, tmp_path):
    result = search(graph, tmp_path / "S", trials=5, method="smac-mf", epochs=9)
    epochs = [trial.epochs for trial in result.trials]
    assert sorted(epochs) == [3, 3, 9, 9, 9]
    assert result.epochs == sum(epochs) == result.curve[-1].epochs
    promoted = next(trial for trial in result.trials[:3] if trial.epochs == 9)
    told = {**SMALL, **promoted.config, "epochs": 9}
    straight = ns.train(graph, progress="none", **told)
    assert promoted.score == straight.summary["valid"]["mrr"]


ERRORS = {
    2: TrainingDiverged("The loss is nan"),
    3: MemoryError(),
    4: torch.OutOfMemoryError("CUDA out of memory"),
    5: RuntimeError("[enforce fail] can't allocate memory"),
}


def fail_in(errors, monkeypatch):
    real = objective.make_trainer

    def make_trainer(*given, out, **named):
        if int(out.name) in errors:
            raise errors[int(out.name)]
        return real(*given, out=out, **named)

    monkeypatch.setattr(objective, "make_trainer", make_trainer)


def test_failed_trials_are_recorded_and_the_search_goes_on(graph, tmp_path, monkeypatch):
    fail_in(ERRORS, monkeypatch)
    result = search(graph, tmp_path / "S", trials=7, method="random")
    fates = [trial.status == "success" for trial in result.trials]
    assert fates == [True, False, False, False, False, True, True]
    assert "nan" in result.trials[1].error
    assert all("memory" in trial.error for trial in result.trials[2:5])
    assert result.as_dict()["failed"] == 4
    assert result.best.status == "success"


def test_a_search_in_which_everything_fails_stops_early(graph, tmp_path, monkeypatch):
    fail_in({number: RuntimeError("no such kernel") for number in range(1, 9)}, monkeypatch)
    with pytest.raises(SearchFailed, match=r"first 3 trials.*no such kernel"):
        search(graph, tmp_path / "S", trials=8, method="random")


def test_a_real_divergence_is_a_failed_trial(graph, tmp_path):
    told = {"lr": 1e30, "scoring": "distmult", "method": "random", "trials": 2}
    with pytest.raises(SearchFailed, match="diverged"):
        search(graph, tmp_path / "S", **told)


def test_options_given_are_used_in_every_trial(graph, tmp_path):
    base = ns.train(graph, out=tmp_path / "base", progress="none", **{**SMALL, "l2": 0.02})
    fixed = {"alpha1": 0.0, "lr": 0.01}
    told = {"trials": 2, "method": "random", "base": tmp_path / "base", **fixed}
    result = ns.tune(graph, out=tmp_path / "S", progress="none", **told)
    for trial in result.trials:
        config = RunFolder(trial.run).read_config()
        assert (config.alpha1, config.lr, config.l2) == (0.0, 0.01, 0.02)
        assert config.dim == base.config.dim
        assert "alpha1" not in trial.config


def test_the_model_is_searched_under_bernoulli(graph, tmp_path):
    told = {"space": "model", "method": "random", "trials": 2, "epochs": 1, "device": "cpu"}
    result = ns.tune(graph, out=tmp_path / "S", progress="none", **told)
    assert result.config.sampler == "bernoulli"
    assert set(result.best.config) == {"dim", "lr", "batch_size", "l2"}


def test_a_graph_without_valid_and_test_is_split(tmp_path):
    whole = ring(entities=60, held_out=0)
    told = {"method": "random", "trials": 1, "epochs": 1}
    result = search(whole, tmp_path / "S", split=0.1, **told)
    assert result.best.score > 0
    again = ns.tune(whole, out=tmp_path / "S", resume=True, progress="none")
    assert untimed_result(again) == untimed_result(result)
    with pytest.raises(UserError, match="needs valid triples"):
        search(whole, tmp_path / "D", split=0.0, **told)


def test_mistakes_are_named(graph, tmp_path, whole):
    done = whole.folder.path
    with pytest.raises(UserError, match="holds a search already"):
        search(graph, done)
    with pytest.raises(UserError, match="no search to resume"):
        ns.tune(out=tmp_path / "none", resume=True)
    with pytest.raises(UserError, match="begun with method random, not smac"):
        ns.tune(out=done, resume=True, method="smac")
    with pytest.raises(UserError, match="begun with dim 4, not 8"):
        ns.tune(out=done, resume=True, dim=8)
    with pytest.raises(UserError, match="not on this graph"):
        ns.tune("world", out=done, resume=True)
    with pytest.raises(UserError, match="valid"):
        search(graph, tmp_path / "S", valid_every=0)
    with pytest.raises(UserError, match="workers must be at least 1"):
        search(graph, tmp_path / "S", workers=0)
    with pytest.raises(UserError, match="need a GPU"):
        search(graph, tmp_path / "S", workers=2, workers_as="threads")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("!")
    with pytest.raises(UserError, match="holds no search"):
        search(graph, tmp_path / "full")


def test_without_smac_the_remedy_is_named(graph, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"nscaching\[tune\]"):
        search(graph, tmp_path / "S")


def test_a_folder_with_any_search_yaml_is_never_touched(graph, tmp_path):
    """It deleted everything beside a file of that name, without --overwrite."""
    mine = tmp_path / "P"
    (mine / "thesis").mkdir(parents=True)
    (mine / "thesis" / "chapter.tex").write_text("years of work")
    (mine / "search.yaml").write_text("engine: lucene\n")
    for overwrite in (False, True):
        with pytest.raises(UserError, match="holds no search"):
            search(graph, mine, trials=1, method="random", overwrite=overwrite)
    assert (mine / "thesis" / "chapter.tex").read_text() == "years of work"
    assert (mine / "search.yaml").read_text() == "engine: lucene\n"


def test_replacing_a_search_removes_its_own_files_only(graph, tmp_path):
    folder = tmp_path / "S"
    search(graph, folder, trials=2, method="random")
    (folder / "notes.txt").write_text("mine")
    for name in ("explorer.html", "rejected.tsv"):  # that other commands put into a run
        (folder / "trials" / "001" / name).write_text("of the trial")
    search(graph, folder, trials=1, method="random", overwrite=True)
    assert not (folder / "trials" / "001" / "explorer.html").exists()
    assert (folder / "notes.txt").read_text() == "mine"
    assert not (folder / "trials" / "002").exists()


def test_what_a_killed_trial_left_does_not_keep_a_search_from_being_replaced(graph, tmp_path):
    folder = tmp_path / "S"
    search(graph, folder, trials=2, method="random")
    trials = folder / "trials"
    (trials / "002" / ".nscaching.lock").write_text('{"pid": 1}')
    for leftover in ("001/.nscaching-new", "001/.model.safetensors.x.tmp", "003/.nscaching-new"):
        (trials / leftover).mkdir(parents=True)
        (trials / leftover / "config.yaml").write_text("half")
    alive = FolderLock(trials / "001")
    alive.acquire()
    with pytest.raises(UserError, match="not replaced"):
        search(graph, folder, trials=1, method="random", overwrite=True)
    alive.release()
    search(graph, folder, trials=1, method="random", overwrite=True)
    assert sorted(path.name for path in trials.iterdir()) == ["001"]
    assert not list(folder.rglob(".*"))


def test_a_search_with_foreign_files_inside_is_not_replaced(graph, tmp_path):
    folder = tmp_path / "S"
    search(graph, folder, trials=1, method="random")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.yaml").write_text("of another program")
    note, link = folder / "trials" / "001" / "notes.txt", folder / "trials" / "007"
    for make in (lambda: note.write_text("mine"), lambda: link.symlink_to(elsewhere)):
        make()
        before = sorted(folder.rglob("*"))
        with pytest.raises(UserError, match="not replaced"):
            search(graph, folder, trials=1, method="random", overwrite=True)
        assert sorted(folder.rglob("*")) == before
        note.unlink(missing_ok=True)
    assert (elsewhere / "config.yaml").read_text() == "of another program"


def test_the_first_trial_is_what_train_makes_by_default(graph, tmp_path):
    options = {"alpha3": 0.777, "cache_size": 13, "lr": 0.02}
    (tmp_path / "base.yaml").write_text("".join(f"{k}: {v}\n" for k, v in options.items()))
    base = {"base": tmp_path / "base.yaml", "trials": 1, "method": "random"}
    result = search(graph, tmp_path / "S", **base)
    plain = ns.train(graph, progress="none", sampler="nscaching", **SMALL, **options)
    assert result.best.score == plain.summary["valid"]["mrr"]
    assert result.config == replace(plain.config, data=result.config.data)


@pytest.mark.parametrize(("asked", "sampler"), [({}, "all"), ({"recipe": "cached"}, "nscaching")])
def test_without_a_word_on_the_method_the_recipe_of_the_graph_is_tuned(
    graph, tmp_path, monkeypatch, asked, sampler
):
    monkeypatch.delenv("NSCACHING_RECIPE")
    told = {"epochs": 2, "device": "cpu", "valid_every": 1, "progress": "none", **asked}
    result = ns.tune(graph, out=tmp_path / "S", trials=2, method="random", **told)
    plain = ns.train(graph, **told)
    assert (result.space, plain.config.sampler) == ("recipe", sampler)
    assert result.trials[0].score == plain.summary["valid"]["mrr"]
    assert result.base == replace(plain.config, data=result.base.data)
    assert {"lr", "dim", "batch_size", "n3", "dropout"} < set(result.trials[1].config)
    assert ("cache_size" in result.searched) == (sampler == "nscaching")
    again = ns.tune(out=tmp_path / "S", resume=True, trials=3, progress="none")
    assert untimed_result(again)[:2] == untimed_result(result)


def test_the_papers_space_goes_with_the_papers_recipe(graph, tmp_path, monkeypatch):
    monkeypatch.delenv("NSCACHING_RECIPE")
    short = {"epochs": 1, "dim": 4, "trials": 1, "method": "random", "progress": "none"}
    for number, asked in enumerate(({"space": "sampler"}, {"alpha1": 0.5}, {"recipe": "paper"})):
        result = ns.tune(graph, out=tmp_path / str(number), **short, **asked)
        assert (result.space, result.config.recipe) == ("sampler", "paper")
        assert (result.config.sampler, result.config.loss) == ("nscaching", "auto")


def test_the_best_file_is_there_from_the_first_trial_on(graph, tmp_path, monkeypatch):
    stop_in_trial(2, monkeypatch)
    with pytest.raises(TrainingInterrupted, match=r"1 of 4 trials finished.*\n.*tune --resume"):
        search(graph, tmp_path / "S", method="random")
    best = TrainConfig.from_file(tmp_path / "S" / "best.yaml")
    assert (best.alpha3, best.cache_size, best.dim) == (1.0, 50, SMALL["dim"])
    monkeypatch.undo()
    (tmp_path / "S" / "best.yaml").unlink()
    result = ns.tune(out=tmp_path / "S", resume=True, progress="none")
    assert TrainConfig.from_file(tmp_path / "S" / "best.yaml") == result.config


def test_seconds_bound_a_search_but_never_to_nothing(graph, tmp_path, capsys):
    long = {"trials": 50, "epochs": 100_000, "patience": 0, "method": "random"}
    short = search(graph, tmp_path / "S", seconds=1.0, **long)
    assert len(short.trials) < 50
    assert short.best.epochs < 100_000
    assert short.seconds < 30
    assert RunFolder(short.trials[0].run).read_config().max_seconds <= 1.0
    assert TrainConfig.from_file(short.folder.best).max_seconds is None
    none = search(graph, tmp_path / "N", seconds=1e-6, trials=3, method="random")
    assert len(none.trials) == 1
    more = ns.tune(out=tmp_path / "N", resume=True, seconds=60.0, progress="lines")
    assert len(more.trials) == 3
    assert "used up" not in capsys.readouterr().err
    ns.tune(out=tmp_path / "N", resume=True, seconds=1e-6, trials=4, progress="lines")
    assert "used up after 3 of 4 trials. Resume with:" in capsys.readouterr().err


def logged(folder):
    """Return the events of a search in order."""
    return [line["event"] for line in folder.log.read()]


def test_seconds_are_those_of_all_sessions(graph, tmp_path, monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    real = objective.make_trainer

    def make_trainer(*given, out, **named):
        now[0] += 100.0
        if out.name == "002" and now[0] < 250:
            raise KeyboardInterrupt
        return real(*given, out=out, **named)

    monkeypatch.setattr(objective, "make_trainer", make_trainer)
    with pytest.raises(TrainingInterrupted):
        search(graph, tmp_path / "S", trials=2, method="random")
    now[0] = 5000.0  # the time between two sessions is nobody's
    whole = ns.tune(out=tmp_path / "S", resume=True, progress="lines")
    assert "Nothing was left" not in capsys.readouterr().err
    assert whole.seconds == 300
    assert [trial.seconds for trial in whole.trials] == [100, 100]
    now[0] = 9000.0
    again = ns.tune(out=tmp_path / "S", resume=True, progress="lines")
    said = capsys.readouterr().err
    assert "Nothing was left to train: the search has its 2 trials. A larger --trials" in said
    assert again.seconds == 300
    log = SearchFolder(tmp_path / "S").log
    untold = [{k: v for k, v in line.items() if k != "elapsed"} for line in log.read()]
    log.path.unlink()  # a log of an earlier version
    for line in untold:
        if line["event"] != "ended":
            log.append(line)
    assert log.elapsed() == 200


def test_a_trial_counts_the_seconds_of_the_session_that_was_stopped_in_it(graph, tmp_path):
    told = {"trials": 1, "method": "random", "epochs": 3}
    short = search(graph, tmp_path / "S", seconds=1e-6, **told)
    (cut,) = short.trials
    metrics = Path(cut.run) / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    for line in lines:
        if line["event"] == "epoch":
            line["seconds"] += 1000
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    resumed = ns.tune(out=tmp_path / "S", resume=True, seconds=600.0, progress="none")
    assert 1000 < resumed.trials[0].seconds < 1600
    more = ns.tune(out=tmp_path / "S", resume=True, trials=2, seconds=600.0, progress="none")
    assert more.trials[0].seconds == resumed.trials[0].seconds


def test_a_trial_that_the_seconds_end_is_continued(graph, tmp_path):
    told = {"trials": 2, "method": "random", "epochs": 9}
    whole = search(graph, tmp_path / "whole", **told)
    short = search(graph, tmp_path / "S", seconds=1e-6, **told)
    (cut,) = short.trials
    assert (cut.status, cut.epochs, short.best) == ("cut", 1, cut)
    assert TrainConfig.from_file(short.folder.best) == short.config
    for epochs in (2, 3):  # every session trains it further, from its checkpoint
        again = ns.tune(out=tmp_path / "S", resume=True, progress="none")
        assert (again.trials[0].status, again.trials[0].epochs) == ("cut", epochs)
    assert logged(short.folder) == ["asked", "ended", "ended", "ended"]  # one of each session
    resumed = ns.tune(out=tmp_path / "S", resume=True, seconds=600.0, progress="none")
    assert untimed_result(resumed) == untimed_result(whole)
    events = [event for event in logged(short.folder) if event != "ended"]
    assert events == ["asked", "answered"] * 2


def test_a_trial_that_its_own_seconds_end_is_finished(graph, tmp_path):
    told = {"trials": 1, "method": "random", "epochs": 9, "max_seconds": 1e-6}
    made = search(graph, tmp_path / "S", seconds=600.0, **told)
    assert [(trial.status, trial.epochs) for trial in made.trials] == [("success", 1)]


@pytest.mark.parametrize("metric", ["hits@3", "accuracy"])
def test_trials_are_compared_by_the_metric_that_is_chosen(graph, tmp_path, metric):
    result = search(graph, tmp_path / "S", select=metric, method="random", trials=3)
    for trial in result.trials:
        run = ns.load_run(trial.run)
        if metric == "accuracy":
            expected = run.classification("valid").accuracy
        else:
            expected = run.evaluate("valid").as_dict()[metric]
        assert trial.score == pytest.approx(expected)
    assert (result.gain is None) == (metric == "accuracy")
    stored = json.loads(result.folder.result.read_text())
    assert stored["metric"] == metric
    assert stored["best"][metric] == max(trial[metric] for trial in stored["trials"])
    with pytest.raises(UserError, match="select must be one of mrr"):
        search(graph, tmp_path / "T", select="loss")


def test_a_search_of_the_first_version_is_resumed_with_the_papers_first_trial(
    graph, tmp_path, capsys
):
    """It had other keys in search.yaml, and began with all temperatures 0 whatever the base had."""
    first = dict.fromkeys(("alpha1", "alpha2", "alpha3"), 0.0)
    (tmp_path / "paper.yaml").write_text("".join(f"{name}: {v}\n" for name, v in first.items()))
    told = {"base": tmp_path / "paper.yaml", "method": "random"}
    whole = search(graph, tmp_path / "whole", trials=4, **told)
    short = search(graph, tmp_path / "S", trials=3, **told)
    stored = yaml.safe_load(short.folder.settings.read_text())
    for name in ("first", "seconds"):
        del stored[name]
    short.folder.settings.write_text(yaml.safe_dump(stored))
    config = short.folder.base / "config.yaml"
    config.write_text(config.read_text().replace("alpha3: 0.0", "alpha3: 1.0"))
    resumed = ns.tune(out=tmp_path / "S", resume=True, trials=4, progress="lines")
    assert untimed_result(resumed) == untimed_result(whole)
    assert "does not repeat" not in capsys.readouterr().err


def test_the_best_has_an_interval_and_a_difference_to_the_first_trial(whole):
    gain = whole.gain
    assert gain.interval[0] <= whole.best.score <= gain.interval[1]
    assert gain.over_first == pytest.approx(whole.best.score - whole.trials[0].score)
    assert gain.over_first_interval[0] <= gain.over_first <= gain.over_first_interval[1]
    assert gain.within_noise == (gain.over_first_interval[0] <= 0)
    stored = json.loads(whole.folder.result.read_text())["gain"]
    assert stored["over_first"] == gain.over_first


def test_the_interval_is_of_the_facts_that_the_score_is_of(graph, tmp_path):
    made = search(graph, tmp_path / "S", trials=2, method="random", valid_facts=3)
    assert made.gain.over_first == pytest.approx(made.best.score - made.trials[0].score)
    assert made.gain.interval[0] <= made.best.score <= made.gain.interval[1]


def test_there_is_no_gain_over_a_first_trial_that_is_not_finished(whole, tmp_path):
    folder = SearchFolder(shutil.copytree(whole.folder.path, tmp_path / "S"))
    settings = folder.read()[0]
    stopped = Search(folder, settings, Progress("none"), 1)
    stopped.resume()
    stopped.trials[1].status = RUNNING
    assert api._result(stopped, settings, 1.0).gain is None


def test_resuming_what_was_never_begun_begins_it(graph, tmp_path):
    made = search(graph, tmp_path / "S", trials=1, method="random", resume=True)
    assert len(made.trials) == 1
    with pytest.raises(UserError, match="holds no search to resume"):
        ns.tune(out=tmp_path / "nowhere", resume=True)


def test_a_trial_that_another_process_trains_is_left_to_it(graph, tmp_path):
    search(graph, tmp_path / "S", trials=1, method="random")
    lock = FolderLock(tmp_path / "S" / "trials" / "002")
    lock.acquire()
    with pytest.raises(UserError, match=r"Trial 2: .* is being written by process"):
        ns.tune(out=tmp_path / "S", resume=True, trials=2, progress="none")
    lock.release()


def test_a_trial_that_is_resumed_keeps_its_configuration(tmp_path, monkeypatch):
    """A killed trial is resumed with the very file that a trial without a stop has."""
    data = write_folder(ring(), tmp_path / "data")

    def killed(trainer, *given):
        if trainer.counters.epoch == 1:
            raise SystemExit
        return train_epoch(trainer, *given)

    train_epoch = Trainer._train_epoch
    small = {**SMALL, "checkpoint_seconds": 0, "method": "random", "trials": 1, "progress": "none"}
    ns.tune(data, out=tmp_path / "whole", **small)
    monkeypatch.setattr(Trainer, "_train_epoch", killed)
    with pytest.raises(SystemExit):
        ns.tune(data, out=tmp_path / "S", **small)
    monkeypatch.undo()
    ns.tune(out=tmp_path / "S", resume=True, progress="none")
    whole, resumed = (tmp_path / name / "trials" / "001" for name in ("whole", "S"))
    assert (resumed / "config.yaml").read_text() == (whole / "config.yaml").read_text()
