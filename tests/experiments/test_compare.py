"""Comparisons of tiny runs: what is trained, what is kept, what is skipped, what fails."""

import errno
import json
import statistics
from dataclasses import replace

import numpy as np
import pytest

import nscaching as ns
from nscaching.artefacts import FolderLock
from nscaching.evaluation.metrics import few_facts_remark
from nscaching.experiments import compare as api
from nscaching.experiments import runner
from nscaching.experiments.comparison import intervals_of
from nscaching.training import RunFolder
from nscaching.training.loop import Trainer

from ..conftest import graph_of
from ..training.helpers import few_valid_facts, kept_bits, ring, train, write_folder

SMALL = {
    "dim": 4,
    "batch_size": 16,
    "device": "cpu",
    "epochs": 2,
    "valid_every": 1,
    "generator_dim": 4,
}


def compare(graph, samplers, **options):
    told = {"seeds": [0], **SMALL, **options}
    return ns.compare(graph, samplers, progress="none", **told)


@pytest.fixture
def data(tmp_path):
    return write_folder(ring(), tmp_path / "ring")


@pytest.fixture
def trained(monkeypatch):
    """Count the calls of train by run folder."""
    calls = []

    def counted(*args, **options):
        calls.append(options["out"].name)
        return train_itself(*args, **options)

    train_itself = runner.train
    monkeypatch.setattr(runner, "train", counted)
    return calls


def test_every_run_is_what_train_makes_of_the_same_options(data, tmp_path):
    made = compare(
        data, "uniform,nscaching:alpha3=2", seeds=[0, 1], out=tmp_path / "C", scoring="transe"
    )
    alone = train(
        data, out=tmp_path / "alone", seed=1, scoring="transe", sampler="nscaching", alpha3=2,
        **SMALL,
    )  # fmt: skip
    result = next(r for r in made.runs if (r.sampler, r.seed) == ("nscaching:alpha3=2", 1))
    assert kept_bits(tmp_path / "C" / result.run) == kept_bits(tmp_path / "alone")
    assert result.test == alone.summary["test"]
    assert result.accuracy == alone.classification("test").accuracy
    assert RunFolder(tmp_path / "C" / result.run).read_config() == alone.config


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "there", "absent"),
    [
        ("auto", {"nscaching", "kbgan", "uniform"}, "all"),
        ("softmax", {"all", "nscaching"}, "kbgan"),
    ],
)
def test_by_default_the_samplers_that_go_with_the_loss_are_compared(
    loss, there, absent, data, tmp_path
):
    found = compare(data, None, out=tmp_path / "c", loss=loss, epochs=1)
    labels = {row["sampler"] for row in found.rows}
    assert there <= labels
    assert absent not in labels
    assert all(row["mrr"] > 0 for row in found.rows)


def test_options_that_only_some_samplers_read_are_not_remarked_on(data, tmp_path, capsys):
    options = {**SMALL, "cache_size": 5, "out": tmp_path / "c"}
    ns.compare(data, ["bernoulli"], seeds=[0], progress="lines", **options)
    told = capsys.readouterr().err
    assert "bernoulli" in told
    assert "no effect" not in told


def test_rows_are_means_over_seeds_with_their_deviation(data, tmp_path):
    made = compare(data, ["uniform", "kbgan"], seeds=[0, 1, 2], out=tmp_path / "C")
    assert [row["sampler"] for row in made.rows] == ["uniform", "kbgan"]
    for row in made.rows:
        mine = [r.test["mrr"] for r in made.runs if r.sampler == row["sampler"]]
        assert len(set(mine)) == 3
        assert row["mrr"] == pytest.approx(statistics.mean(mine))
        assert row["mrr_spread"] == pytest.approx(statistics.stdev(mine))
        assert row["seconds_per_epoch"] > 0
    entities, relations = 30, 3
    assert made.rows[0]["extra_parameters"] == 0
    assert made.rows[1]["extra_parameters"] == (entities + relations) * SMALL["generator_dim"]
    kept = json.loads((tmp_path / "C" / "compare.json").read_text())
    assert kept == made.as_dict()


def test_a_picture_is_drawn(data, tmp_path):
    made = compare(data, "uniform,bernoulli", out=tmp_path / "C")
    assert made.picture == "compare.svg"
    drawn = (tmp_path / "C" / "compare.svg").read_text()
    assert drawn.startswith("<svg")
    assert "bernoulli" in drawn


def test_one_that_fails_is_a_row_and_the_others_go_on(data, tmp_path):
    samplers = "igan:generator_memory=1:generator_dim=5000,uniform:lr=1e37,bernoulli"
    made = compare(data, samplers, out=tmp_path / "C", scoring="distmult")
    refused, diverged, done = made.rows
    assert (refused["runs"], refused["mrr"]) == (0, None)
    assert "generator_memory allows 1" in refused["errors"][0]
    assert "diverged" in diverged["errors"][0]
    assert done["mrr"] > 0
    assert done["errors"] == []


def test_a_mistake_is_named_before_anything_is_trained(data, tmp_path, trained):
    for options, words in (
        ({"samplers": "uniform,nscaching:alpha9=1"}, "alpha9"),
        ({"samplers": "uniform,nscaching", "preset": "igan"}, "preset 'igan'"),
        ({"samplers": "uniform", "dimm": 3}, "dimm"),
    ):
        with pytest.raises(ns.UserError, match=words):
            compare(data, out=tmp_path / "C", **options)
    assert trained == []
    assert not (tmp_path / "C").exists()


def test_an_occupied_folder_is_refused_or_replaced(data, tmp_path, trained):
    compare(data, "uniform", out=tmp_path / "C")
    with pytest.raises(ns.UserError, match="--resume"):
        compare(data, "uniform,bernoulli", out=tmp_path / "C")
    compare(data, "uniform", out=tmp_path / "C", overwrite=True, lr=0.5)
    assert trained == ["uniform-seed0"] * 2
    assert RunFolder(tmp_path / "C" / "uniform-seed0").read_config().lr == 0.5


def test_resuming_skips_what_is_finished_and_does_the_rest(data, tmp_path, trained):
    out = tmp_path / "C"
    first = compare(data, "uniform,nscaching:preset=kbgan", out=out)
    trained.clear()
    again = ns.compare(out=out, resume=True, progress="none")
    assert trained == []
    assert again.as_dict() == first.as_dict()
    more = ns.compare(
        out=out, resume=True, seeds=[0, 1], samplers="bernoulli,uniform", progress="none"
    )
    assert trained == ["bernoulli-seed0", "bernoulli-seed1", "uniform-seed1"]
    assert more.runs[1] == first.runs[0]
    trained.clear()
    longer = ns.compare(out=out, resume=True, epochs=3, progress="none")
    assert len(trained) == 4
    assert {result.epochs for result in longer.runs} == {3}
    with pytest.raises(ns.UserError, match="started with dim 4, not 5"):
        ns.compare(out=out, resume=True, dim=5, progress="none")


def test_resuming_finds_the_folder_that_the_data_names(data, tmp_path, trained, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = compare(data, "uniform")
    trained.clear()
    again = ns.compare(data, resume=True, progress="none")
    assert trained == []
    assert again.as_dict() == first.as_dict()


def test_a_stopped_comparison_goes_on_to_the_same_end(data, tmp_path, monkeypatch):
    whole = compare(data, "uniform,nscaching,bernoulli", out=tmp_path / "whole")
    train_itself = runner.train

    def stopped(*args, **options):
        if options["out"].name == "nscaching-seed0":
            train_itself(*args, **{**options, "epochs": 1})
            raise ns.TrainingInterrupted("Stopped by SIGINT")
        return train_itself(*args, **options)

    monkeypatch.setattr(runner, "train", stopped)
    with pytest.raises(ns.TrainingInterrupted, match="1 of 3 runs") as error:
        compare(data, "uniform,nscaching,bernoulli", out=tmp_path / "C")
    assert f"nscaching compare --resume --out {tmp_path / 'C'}" in str(error.value)
    monkeypatch.undo()
    resumed = ns.compare(out=tmp_path / "C", resume=True, progress="none")
    assert [r.test for r in resumed.runs] == [r.test for r in whole.runs]
    assert [r.epochs for r in resumed.runs] == [2, 2, 2]


def test_results_of_another_graph_are_not_taken_over(data, tmp_path):
    other = write_folder(ring(entities=20), tmp_path / "other")
    first = compare(data, "uniform", out=tmp_path / "C")
    for named in (other, ring(entities=20)):
        with pytest.raises(ns.UserError, match="another graph"):
            compare(named, "uniform,bernoulli", out=tmp_path / "C", resume=True)
    assert not (tmp_path / "C" / "bernoulli-seed0").exists()
    assert ns.compare(out=tmp_path / "C", resume=True, progress="none").rows == first.rows


def test_a_file_that_was_changed_is_another_graph(tmp_path):
    names = [[f"e{number}" for number in triple] for triple in ring(held_out=0).train.tolist()]
    lines = ["\t".join(triple) + "\n" for triple in names]
    file, out = tmp_path / "facts.tsv", tmp_path / "C"
    file.write_text("".join(lines))
    first = compare(file, "uniform", out=out, split=0.1)
    file.write_text("".join(lines[::2]))
    with pytest.raises(ns.UserError, match="another graph"):
        ns.compare(out=out, resume=True, samplers="uniform,bernoulli", progress="none")
    file.write_text("".join(lines))
    more = ns.compare(out=out, resume=True, samplers="uniform,bernoulli", progress="none")
    assert more.runs[0] == first.runs[0]
    assert more.runs[1].graph == first.runs[0].graph


def test_runs_on_different_graphs_have_no_difference(tmp_path):
    """As comparisons of 0.1.0 may hold them, which took over what other facts had given."""
    made = compare(ring(entities=60), "uniform,bernoulli", out=tmp_path / "C")
    ranks = {run.run: np.ones((2, 5 + at)) for at, run in enumerate(made.runs)}
    made.runs = [replace(run, graph=run.sampler) for run in made.runs]
    made.intervals = intervals_of(made, ranks)
    assert all(row["difference"] is None for row in made.rows)
    made.runs[0].test["mrr"] = 1.0
    assert [made.texts(row)["to the best"] for row in made.rows] == ["best", "–"]


def test_seconds_are_a_budget_without_a_bound_of_epochs(data, tmp_path):
    options = {name: value for name, value in SMALL.items() if name != "epochs"}
    made = ns.compare(
        data, "uniform", out=tmp_path / "C", max_seconds=1e-6, progress="none", seeds=[0], **options
    )
    assert made.runs[0].epochs == 1  # the epoch in which they are used up
    assert made.runs[0].valid is not None
    config = RunFolder(tmp_path / "C" / "uniform-seed0").read_config()
    assert config.epochs > 100_000


def test_a_graph_made_in_python_and_one_without_splits(tmp_path):
    made = compare(ring(), "uniform", out=tmp_path / "C")
    assert made.data is None
    bare = ring(entities=60, held_out=0)
    made = compare(bare, "uniform", out=tmp_path / "S", split=0.1)
    assert made.rows[0]["mrr"] > 0  # split like a file
    made = compare(bare, "uniform", out=tmp_path / "D", split=0)
    assert (made.rows[0]["mrr"], made.rows[0]["accuracy"], made.picture) == (None, None, None)
    assert made.rows[0]["runs"] == 1


def test_the_time_left_is_said(data, tmp_path, capsys):
    ns.compare(data, "uniform,bernoulli", out=tmp_path / "C", progress="lines", seeds=[0], **SMALL)
    said = capsys.readouterr().err
    assert "Run 1 of 2: uniform, seed 0\n" in said
    assert "Run 2 of 2: bernoulli, seed 0 (about" in said


def test_a_small_graph_gets_three_seeds_unless_told(data, tmp_path, monkeypatch, capsys):
    told = {**SMALL, "epochs": 1}
    made = ns.compare(data, "uniform", out=tmp_path / "C", progress="lines", **told)
    assert made.seeds == [0, 1, 2]
    assert "3 seeds" in capsys.readouterr().err
    assert ns.compare(ring(), "uniform", out=tmp_path / "G", progress="none", **told).seeds == [
        0,
        1,
        2,
    ]
    one = ns.compare(data, "uniform", out=tmp_path / "D", progress="none", seed=5, **told)
    assert one.seeds == [5]
    monkeypatch.setattr(api, "SMALL_GRAPH", 10)
    assert ns.compare(data, "uniform", out=tmp_path / "E", progress="none", **told).seeds == [0]
    monkeypatch.setattr(api, "_LARGE_FILE", 1)
    monkeypatch.setattr(api, "load_graph", None)  # not read to know that it is large
    assert api._training_triples(data) == float("inf")
    assert api._training_triples("FB15K-237") == 272_115


def test_rows_have_intervals_and_differences_to_the_best(tmp_path):
    told = {"seeds": [0, 1], "epochs": 40, "dim": 16, "lr": 0.05, "valid_every": 10}
    graph = ring(entities=80, held_out=20)
    made = compare(graph, "uniform,nscaching,uniform:lr=1e-9", out=tmp_path / "C", **told)
    best = max(made.rows, key=lambda row: row["mrr"])
    for row in made.rows:
        low, high = row["mrr_interval"]
        assert low <= row["mrr"] <= high
        assert row["hits@10_interval"][0] <= row["hits@10"] <= row["hits@10_interval"][1]
        if row["sampler"] == best["sampler"]:
            assert row["difference"] is None
            continue
        assert row["difference"]["to"] == best["sampler"]
        assert row["difference"]["mrr"] == pytest.approx(row["mrr"] - best["mrr"])
    untrained = made.rows[-1]["difference"]
    assert not untrained["within_noise"]
    assert untrained["interval"][1] < 0


def test_equal_runs_differ_within_noise(data, tmp_path):
    made = compare(data, "uniform,uniform:negatives=1", out=tmp_path / "C")
    one, other = made.rows
    assert one["mrr"] == other["mrr"]
    assert {one["sampler"]: one["difference"], other["sampler"]: other["difference"]}[
        "uniform:negatives=1"
    ] == {"to": "uniform", "mrr": 0.0, "interval": [0.0, 0.0], "within_noise": True}


def test_splits_that_differ_by_seed_are_taken_together(tmp_path):
    made = compare(
        ring(entities=60, held_out=0), "uniform,bernoulli", out=tmp_path / "S", split=0.1,
        seeds=[0, 1],
    )  # fmt: skip
    assert len({result.graph for result in made.runs}) == 2
    for row in made.rows:
        assert row["mrr_interval"][0] <= row["mrr"] <= row["mrr_interval"][1]


def test_a_leaking_graph_is_remarked_on(tmp_path):
    graph = ring()
    train = [tuple(fact) for fact in graph.train.tolist()]
    inverse = [(t, r + 3, h) for h, r, t in [*train, *map(tuple, graph.test.tolist())]]
    leaking = graph_of(train + inverse, graph.valid, graph.test, entities=graph.num_entities)
    made = compare(leaking, "uniform", out=tmp_path / "C")
    assert "100% of the test facts" in made.remarks[0]
    few = compare(graph, "uniform", out=tmp_path / "D")
    assert few.remarks == [few_facts_remark(len(graph.test))]
    many = ring(entities=80, held_out=30)
    assert compare(many, "uniform", out=tmp_path / "E").remarks == []


def test_a_folder_of_the_first_version_is_resumed(data, tmp_path, trained):
    """It had compare.json alone: no trial log, no ranks, no digest of the graph."""
    out = tmp_path / "C"
    first = compare(data, "uniform,bernoulli", out=out)
    (out / "trials.jsonl").unlink()
    for file in (out / "ranks").iterdir():
        file.unlink()
    stored = json.loads((out / "compare.json").read_text())
    for name in ("remarks",):
        del stored[name]
    for run in stored["runs"]:
        del run["graph"]
    (out / "compare.json").write_text(json.dumps(stored))
    trained.clear()
    again = ns.compare(out=out, resume=True, progress="none")
    assert trained == []
    assert again.rows == first.rows


def test_runs_that_name_their_split_and_draw_some_of_valid_are_resumed(
    data, tmp_path, trained, monkeypatch
):
    """Until a share was left open every configuration said split 0.05."""
    few_valid_facts(monkeypatch, 2)
    out = tmp_path / "C"
    compare(data, "uniform,bernoulli", out=out)
    for config in out.glob("*/config.yaml"):
        text = config.read_text()
        assert "valid_facts: 2" in text
        config.write_text(text.replace("split: null", "split: 0.05"))
    trained.clear()
    longer = ns.compare(out=out, resume=True, progress="none", epochs=3)
    assert trained == ["uniform-seed0", "bernoulli-seed0"]
    assert [result.epochs for result in longer.runs] == [3, 3]


def test_a_further_sampler_ranks_the_facts_of_runs_that_named_their_split(tmp_path, monkeypatch):
    data, out = tmp_path / "facts.tsv", tmp_path / "C"
    lines = ("\t".join(triple) for triple in map(ring().named, ring().train.tolist()))
    data.write_text("\n".join(lines) + "\n")
    compare(data, "uniform", out=out, split=0.1)
    told = json.loads((out / "compare.json").read_text())
    del told["options"]["split"]  # as where 0.1 is the default
    (out / "compare.json").write_text(json.dumps(told))
    made = compare(data, "uniform,bernoulli", out=out, resume=True)
    assert len({result.graph for result in made.runs}) == 1


def test_runs_with_a_recipe_are_resumed_with_what_it_fitted(data, tmp_path, trained):
    out, given = tmp_path / "C", {"seeds": [0], "progress": "none"}
    given |= {"recipe": "cached", "epochs": 2, "dim": 4, "device": "cpu"}
    ns.compare(data, ["nscaching"], out=out, **given)
    trained.clear()
    again = ns.compare(out=out, resume=True, progress="none")
    assert trained == []
    longer = ns.compare(out=out, resume=True, progress="none", epochs=3)
    assert [result.epochs for result in longer.runs] == [3]
    with pytest.raises(ns.UserError, match=r"was started with n3 0\.1, not 0\.5"):
        ns.compare(out=out, resume=True, progress="none", n3=0.5)
    assert again.runs[0].epochs == 2


def test_a_killed_comparison_knows_its_finished_runs_from_the_log(data, tmp_path, trained):
    out = tmp_path / "C"
    compare(data, "uniform,bernoulli", out=out)
    stored = json.loads((out / "compare.json").read_text())
    (out / "compare.json").write_text(json.dumps({**stored, "runs": []}))
    with (out / "trials.jsonl").open("a") as log:
        log.write('{"sampler": "bern')
    trained.clear()
    again = ns.compare(out=out, resume=True, progress="none")
    assert trained == []
    assert [result.test for result in again.runs] == [run["test"] for run in stored["runs"]]


DAMAGE = [b"\xff\xfe", b"[" * 50_000, b"[]", b"{}", b'{"runs": 3}', b'{"data": {}, "seeds": "x"}']


@pytest.mark.parametrize("damage", DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_comparison_is_one_sentence_with_the_file(tmp_path, damage):
    (tmp_path / "compare.json").write_bytes(damage)
    with pytest.raises(ns.UserError, match=r"compare\.json") as said:
        api._earlier(tmp_path)
    assert "\n" not in str(said.value)


def test_a_damaged_line_of_the_log_is_run_again(data, tmp_path, trained):
    out = tmp_path / "C"
    whole = compare(data, "uniform,bernoulli", out=out)
    lines = (out / "trials.jsonl").read_bytes().splitlines(keepends=True)
    (out / "trials.jsonl").write_bytes(lines[0] + b"\xff" + lines[1])
    trained.clear()
    again = ns.compare(out=out, resume=True, progress="none")
    assert trained == ["bernoulli-seed0"]
    assert [run.test for run in again.runs] == [run.test for run in whole.runs]


def test_a_folder_with_something_else_is_refused_and_one_in_use_too(data, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("!")
    for how in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(ns.UserError, match="holds no comparison"):
            compare(data, "uniform", out=tmp_path / "mine", **how)
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    compare(data, "uniform", out=tmp_path / "C")
    (tmp_path / "C" / "notes.txt").write_text("mine")
    compare(data, "uniform", out=tmp_path / "C", overwrite=True)
    assert (tmp_path / "C" / "notes.txt").read_text() == "mine"
    lock = FolderLock(tmp_path / "C")
    lock.acquire()
    with pytest.raises(ns.UserError, match="being written by"):
        ns.compare(out=tmp_path / "C", resume=True, progress="none")
    lock.release()


def test_a_folder_with_a_file_named_like_the_marker_is_left_alone(data, tmp_path):
    texts = {"nscaching.json": "notes", "report.html": "my page"}
    for name, text in texts.items():
        (tmp_path / "mine").mkdir(exist_ok=True)
        (tmp_path / "mine" / name).write_text(text)
    for how in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(ns.UserError, match="holds no comparison"):
            compare(data, "uniform", out=tmp_path / "mine", **how)
    assert {each.name: each.read_text() for each in (tmp_path / "mine").iterdir()} == texts


def test_a_seed_that_is_named_twice_is_trained_once(data, tmp_path, trained):
    made = compare(data, "uniform", seeds=[1, 0, 1], out=tmp_path / "C")
    assert trained == ["uniform-seed1", "uniform-seed0"]
    assert made.seeds == [1, 0]


@pytest.mark.parametrize("left", [0, 40, -9])
def test_damaged_ranks_are_made_again(data, tmp_path, trained, left):
    first = compare(data, "uniform,bernoulli", out=tmp_path / "C")
    file = tmp_path / "C" / "ranks" / "uniform-seed0.npy"
    whole = file.read_bytes()
    file.write_bytes(whole[:left])
    trained.clear()
    again = ns.compare(out=tmp_path / "C", resume=True, progress="none")
    assert trained == []
    assert again.rows == first.rows
    assert file.read_bytes() == whole


def test_a_start_that_was_killed_is_no_obstacle(data, tmp_path, monkeypatch):
    """Whatever is missing of the first files, the same command begins the comparison."""
    out = tmp_path / "C"
    compare(data, "uniform", out=out)
    (out / "compare.json").unlink()
    again = compare(data, "uniform", out=out, resume=True)
    assert [run.error for run in again.runs] == [None]


def test_overwrite_keeps_the_old_comparison_until_the_new_one_is_written(
    data, tmp_path, monkeypatch
):
    out = tmp_path / "C"
    compare(data, "uniform", out=out)
    before = (out / "compare.json").read_bytes()

    def killed(*given):
        raise SystemExit

    monkeypatch.setattr(api.CompareSweep, "_write", killed)
    with pytest.raises(SystemExit):
        compare(data, "bernoulli", out=out, overwrite=True)
    assert (out / "compare.json").read_bytes() == before


def test_a_full_disk_ends_the_comparison(data, tmp_path, monkeypatch):
    """It is no failure of one sampler: those after it could not be written either."""

    def full(self, *given, **named):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("nscaching.artefacts.files.save_file", full)
    with pytest.raises(ns.UserError, match="bytes are free in"):
        compare(data, "uniform,bernoulli", out=tmp_path / "C")
    monkeypatch.undo()
    made = compare(data, "uniform,bernoulli", out=tmp_path / "C", resume=True)
    assert [run.error for run in made.runs] == [None, None]


def test_the_time_left_leaves_out_that_of_compiling(data, tmp_path, monkeypatch, capsys):
    now, real = [0.0], Trainer._train_epoch

    def train_epoch(trainer, *given):
        first = trainer.counters.epoch == 0
        now[0] += 600.0 if first and trainer.config.sampler == "uniform" else 10.0
        return real(trainer, *given)

    def waited():
        """Half a minute for each run that was trained."""
        return 30.0 * len(list((tmp_path / "C").glob("*/model.safetensors")))

    def make(planned, *given, **named):
        now[0] += 30.0
        return made(planned, *given, **named)

    made = runner.PlannedRun.make
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(Trainer, "_train_epoch", train_epoch)
    monkeypatch.setattr(runner.PlannedRun, "make", make)
    monkeypatch.setattr(api, "seconds_waited", waited)
    told = {**SMALL, "epochs": 4, "out": tmp_path / "C", "progress": "lines"}
    ns.compare(data, "uniform,bernoulli,nscaching", seeds=[0], **told)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Run ")]
    assert said == [
        "Run 1 of 3: uniform, seed 0",
        "Run 2 of 3: bernoulli, seed 0 (about 1 min 20 s left for all)",
        "Run 3 of 3: nscaching, seed 0 (about 40.0 s left for all)",
    ]
    ns.compare(data, "uniform,bernoulli,nscaching", seeds=[0, 1], resume=True, **told)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Run ")]
    assert said[0] == "Run 4 of 6: uniform, seed 1 (about 2 min 0 s left for all)"
