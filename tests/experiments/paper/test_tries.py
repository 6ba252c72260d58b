"""Equal tuning: the same tries for every sampler, chosen on valid, then seeds on test; resumed."""

import json
from dataclasses import replace

import pytest

from nscaching.errors import TrainingDiverged, TrainingInterrupted, UserError
from nscaching.experiments.paper import api, definition, reproduce
from nscaching.experiments.paper.definitions import (
    LONGER,
    TRY,
    TUNED,
    packaged,
    settings_of,
    shortened,
)
from nscaching.experiments.paper.expected import (
    cost_of,
    epochs_share,
    last_end,
    shared,
    sizes_of,
    slowness,
)
from nscaching.experiments.paper.plan import Request, plan
from nscaching.experiments.paper.results import Results, blank_row, cell_of
from nscaching.experiments.paper.tries import (
    BLOCK,
    drawn,
    expanded,
    lengths,
    ranked_tries,
    try_settings,
)
from nscaching.experiments.runner import DONE
from nscaching.training import Trainer

TWO = {"dataset": ["WN18RR"], "scoring": ["simple"], "mode": ["scratch"]}
SMALL = {**TWO, "budget": 2, "device": "cpu", "on": "shape/400", "tries": 2, "seeds": (0, 1)}


def run(out, name="table-7", progress="none", **asked):
    return reproduce(name, Request(out=out, **{**SMALL, **asked}), progress=progress)


def lengths_of(row, kind):
    return shortened(lengths(cell_of(row), kind), SMALL["budget"])


def tries_of(sampler, name="table-7", tries=8, **filters):
    asked = {**TWO, **filters}
    cells = definition(name).cells(**asked, sampler=[sampler])
    return [cell for cell in expanded(definition(name), cells, tries) if cell.kind == TRY]


def test_all_samplers_of_a_model_try_the_same_settings_of_it():
    grid = packaged("grid.yaml")["models"]["logistic"]
    of = {
        sampler: [try_settings(cell) for cell in tries_of(sampler)]
        for sampler in ("bernoulli", "kbgan", "nscaching")
    }
    parts = {s: [{k: x[k] for k in grid} for x in tries] for s, tries in of.items()}
    assert parts["bernoulli"] == parts["kbgan"] == parts["nscaching"]


def test_all_samplers_are_trained_equally_long():
    for kind, patience in ((TRY, 0), (LONGER, 0), (TUNED, 6)):
        one, other = (lengths(tries_of(sampler)[0], kind) for sampler in ("bernoulli", "nscaching"))
        assert one == other
        assert one["patience"] == patience


def test_pretraining_comes_on_top_and_its_end_is_where_the_pretrained_stop():
    def epochs(mode, kind, sampler="nscaching"):
        (cell,) = definition("table-7").cells(
            dataset=["WN18RR"], scoring=["transe"], sampler=[sampler], mode=[mode]
        )
        return lengths(cell, kind)["epochs"]

    before = epochs("pretrained", TRY, "bernoulli")
    assert before == epochs("pretrained", TUNED, "bernoulli")
    assert epochs("pretrain", TRY) == epochs("scratch", TRY) + before


def test_within_a_block_every_value_comes_about_as_often():
    for axis, values in packaged("grid.yaml")["models"]["margin"].items():
        found = [drawn("WN18/transe", {axis: values}, n)[axis] for n in range(BLOCK)]
        counts = [found.count(value) for value in values]
        assert max(counts) - min(counts) <= 1


def test_more_tries_keep_those_there_are():
    few, many = tries_of("bernoulli", tries=3), tries_of("bernoulli", tries=11)
    assert many[:3] == few
    every = [json.dumps(try_settings(cell)) for cell in many]
    assert len(set(every)) == 11


def test_table_8_is_tried_by_accuracy_and_table_11_by_micro_f1():
    for name, select in (("table-8", "accuracy"), ("table-11", "micro_f1")):
        cells = list(expanded(definition(name), definition(name).cells()[:1], 1))
        assert [cell.kind for cell in cells] == (
            [TRY, TUNED] if name == "table-11" else [TRY, LONGER, TUNED]
        )  # nodes are embedded in a few epochs, which are part of the grid
        assert {cell.options["select"] for cell in cells} == {select}
    assert try_settings(tries_of("nscaching", "table-8")[0])["select"] == "accuracy"


def test_searches_cannot_be_tried():
    with pytest.raises(UserError, match="table-9 is not made of cells"):
        list(expanded(definition("table-9"), definition("table-9").cells(), 2))


def test_the_tries_of_a_sampler_are_for_all_of_its_modes(tmp_path):
    modes = {"sampler": ["nscaching"], "mode": ["pretrain", "scratch", "auto"], "seeds": (0,)}
    made = run(tmp_path, **modes)
    tries = Results(tmp_path).tries
    assert [(line["mode"], line["kind"]) for line in tries] == (
        [("scratch", TRY)] * 2 + [("scratch", LONGER)] * 2
    )
    by_mode = {row["mode"]: row["chosen"] for row in made.rows}
    own = {"epochs", "valid_every", "patience", "pretrain_epochs"}
    plain = {k: v for k, v in by_mode["scratch"].items() if k not in own}
    assert {k: v for k, v in by_mode["pretrain"].items() if k not in own} == plain
    assert by_mode["pretrain"]["pretrain_epochs"] > 0 == plain.get("pretrain_epochs", 0)
    searched = packaged("numbers.json")["searched"]["WN18RR"]
    assert by_mode["auto"].items() >= {**searched, "rescale": "quantile"}.items()
    assert by_mode["auto"]["lr"] == plain["lr"]
    assert {planned.state for planned in run(tmp_path, **modes).plan} == {DONE}


def test_a_generator_that_starts_from_a_pretrained_model_is_not_warmed_up_twice():
    def settings(mode):
        cells = definition("table-7").cells(
            dataset=["WN18"], scoring=["transe"], sampler=["igan"], mode=[mode]
        )
        tried = try_settings(tries_of("igan", dataset=["WN18"], scoring=["transe"])[0])
        return settings_of(cells[0], tried)

    assert settings("scratch")["generator_epochs"] > 0
    assert "generator_epochs" not in settings("pretrain")


@pytest.mark.slow
def test_the_best_on_valid_is_run_with_every_seed_and_only_that_looks_at_test(tmp_path):
    both = {"sampler": ["bernoulli", "nscaching"]}
    made = run(tmp_path, **both, tries=3)
    lines = [json.loads(line) for line in (tmp_path / "tries.jsonl").read_text().splitlines()]
    stages = [(TRY, 0), (TRY, 1), (TRY, 2), (LONGER, 0), (LONGER, 1)]
    assert [(line["sampler"], line["kind"], line["seed"]) for line in lines] == [
        (sampler, *stage) for sampler in both["sampler"] for stage in stages
    ]
    assert all(line["valid"]["mrr"] > 0 and line["seconds"] > 0 for line in lines)
    assert not any("test" in line for line in lines)
    assert [(row["sampler"], row["seed"]) for row in made.rows] == [
        ("bernoulli", 0), ("bernoulli", 1), ("nscaching", 0), ("nscaching", 1)
    ]  # fmt: skip
    for row in made.rows:
        alike = [line for line in lines if line["sampler"] == row["sampler"]]
        tries = sorted(alike[:3], key=lambda line: -line["valid"]["mrr"])
        kept = alike[3:]
        for line, of in zip(kept, tries, strict=False):  # the best two, the same seed, longer
            assert line["chosen"] == of["settings"] | lengths_of(row, LONGER)
        best = max(kept, key=lambda line: line["valid"]["mrr"])
        assert row["chosen"] == best["chosen"] | lengths_of(row, TUNED) | {"seed": row["seed"]}
        assert (row["tried"]["count"], row["tried"]["longer"]) == (3, 2)
        assert row["test"]["mrr"] > 0
    again = run(tmp_path, **both, tries=3)
    assert {planned.state for planned in again.plan} == {DONE}
    assert again.rows == made.rows


def test_a_stopped_command_repeats_no_finished_try(tmp_path, monkeypatch):
    itself, runs = api.try_row, []

    def counted(*args):
        runs.append(args)
        if len(runs) == 2:
            raise KeyboardInterrupt
        return itself(*args)

    monkeypatch.setattr(api, "try_row", counted)
    with pytest.raises(TrainingInterrupted, match="--tries 2") as stopped:
        run(tmp_path, sampler=["bernoulli"])
    assert "1 of 6 cells finished" in str(stopped.value)
    assert len(run(tmp_path, sampler=["bernoulli"]).rows) == 2
    assert len(runs) == 5  # two tries, one of them twice, and two longer ones


def test_nothing_starts_that_would_end_too_late_and_the_command_resumes(tmp_path):
    early = run(tmp_path, sampler=["bernoulli"], seconds=1e-6)
    assert (early.rows, Results(tmp_path).tries) == ([], [])
    assert len(run(tmp_path, sampler=["bernoulli"], seconds=1e6).rows) == 2
    first, second = (json.loads(x) for x in (tmp_path / "times.jsonl").read_text().splitlines())
    assert (first["finished"], second["finished"], second["of"]) == (0, 6, 6)
    assert first["expected_seconds"] > 0


def test_a_try_that_diverges_counts_and_is_never_chosen(tmp_path, monkeypatch):
    itself = Trainer.run

    def diverge(trainer, *args, **options):
        if trainer.config.seed == 0:
            raise TrainingDiverged("The loss is nan")
        return itself(trainer, *args, **options)

    monkeypatch.setattr(Trainer, "run", diverge)
    (row,) = run(tmp_path, sampler=["bernoulli"], seeds=(3,)).rows
    assert (row["tried"]["count"], row["tried"]["diverged"], row["tried"]["best"]) == (2, 1, 1)
    first, second, *longer = Results(tmp_path).tries
    assert (first["valid"], first["diverged"]) == (None, "The loss is nan")
    assert ranked_tries(tries_of("bernoulli")[0], [first, second]) == [second]
    assert [line["chosen"]["seed"] for line in longer] == [1, 1]


def test_a_cell_with_a_failed_try_is_not_tuned_on_fewer(tmp_path, monkeypatch, capsys):
    itself = api.try_row

    def fail(settings, *args):
        if settings["seed"] == 0:
            raise MemoryError
        return itself(settings, *args)

    with monkeypatch.context() as patched:
        patched.setattr(api, "try_row", fail)
        (row,) = run(tmp_path, sampler=["bernoulli"], seeds=(3,), progress="lines").rows
    assert "1 of its 2 tries failed (out of memory)" in row["error"]
    assert capsys.readouterr().err.count("failed: out of memory") == 1  # said once
    assert [line["seed"] for line in Results(tmp_path).tries] == [1]  # a failure is no try
    (row,) = run(tmp_path, sampler=["bernoulli"], seeds=(3,)).rows
    assert row["tried"]["count"] == 2


def test_table_8_chooses_by_accuracy(tmp_path):
    made = run(tmp_path, "table-8", sampler=["bernoulli"], seeds=(0,))
    tries = Results(tmp_path).tries
    assert all(0 <= line["valid"]["accuracy"] <= 1 for line in tries)
    assert made.rows[0]["tried"]["select"] == "accuracy"
    assert made.rows[0]["accuracy"] is not None


def test_the_time_said_before_follows_a_timed_step_and_what_stops_early(tmp_path):
    asked = Request(out=tmp_path, **{**SMALL, "budget": None, "sampler": ["bernoulli"]})
    cells = list(expanded(definition("table-7"), definition("table-7").cells(**asked.filters), 2))
    said = []
    planned = plan(cells, asked, Results(tmp_path), said.append)
    assert said == ["Timing SimplE, bernoulli, WN18RR"]  # once for all of its tries
    for each in planned:
        assert 0 < each.seconds <= each.at_most
        assert (each.seconds < each.at_most) == (each.cell.kind == TUNED)


def test_the_share_of_the_epochs_is_that_of_the_same_data_loss_and_sampler():
    cell = tries_of("bernoulli")[0]

    def row(epochs, **other):
        made = blank_row(replace(cell, **other), {"epochs": 400})
        return {**made, "epochs": epochs}

    rows = [row(100), row(300, sampler="nscaching"), row(400, scoring="transe")]
    assert epochs_share(rows, cell, {"patience": 3}) == 0.25
    assert epochs_share(rows[1:], cell, {"patience": 3}) == 0.75
    assert epochs_share(rows, cell, {"patience": 0}) == 1.0
    assert epochs_share([], replace(cell, dataset="FB15K-237"), {"patience": 3}) == 0.39
    far = replace(cell, dataset="FB15K-237", scoring="transe")
    assert epochs_share(rows, far, {"patience": 3}) == 0.97


def test_runs_beside_one_another_are_slower_and_the_most_alike_say_how_much():
    assert shared("bernoulli", 9, "cuda") > shared("nscaching", 9, "cuda") > 1
    assert shared("bernoulli", 1, "cuda") == 1
    cell, hardware = tries_of("bernoulli")[0], {"gpu": None, "processor": "P", "cores": 2}

    def row(slower, **other):
        made = blank_row(replace(cell, **other), try_settings(cell))
        cost = cost_of(cell_of(made), made["settings"], sizes_of(cell.dataset, None), "cpu")
        timed = {"wall": cost.seconds(slower), "device": "cpu", "workers": 2}
        return {**made, **timed, "hardware": hardware}

    rows = [row(3.0), row(5.0, scoring="distmult"), row(9.0, sampler="uniform")]
    asked = hardware, 2, None
    like = cell.dataset, cell.scoring, cell.sampler
    assert slowness(rows, *asked, like) == pytest.approx(3)
    assert slowness(rows[1:], *asked, like) == pytest.approx(5)
    assert slowness(rows[2:], *asked, like) == pytest.approx(9)
    nodes = {**row(7.0), "scoring": None, "sampler": "LINE"}  # which say nothing of facts
    assert slowness([*rows[2:], nodes], *asked, like) == pytest.approx(9)
    assert slowness([nodes], *asked, like) is None
    assert slowness([nodes], *asked) is not None
    assert slowness([*rows, row(50.0, options={"trace": True})], *asked, like) == pytest.approx(3)
    assert slowness(rows, hardware, 3, None) is None


def test_the_last_of_some_runs_ends_after_those_that_its_worker_took_before():
    assert last_end([3, 1, 1, 1], 1) == 6
    assert last_end([3, 1, 1, 1], 2) == 3
    assert last_end([2, 2, 2], 2) == 4  # one worker has nothing to do for half of the time
    assert last_end([], 3) == 0


def test_nodes_are_tuned_by_micro_f1(tmp_path, capsys):
    asked = {"dataset": ["cora"], "sampler": ["LINE"], "tries": 2, "seeds": (0,), "budget": 1}
    request = Request(out=tmp_path, device="cpu", on="shape/400", **asked)
    (row,) = reproduce("table-11", request, progress="lines").rows
    first, second = (line["valid"]["micro_f1"] for line in Results(tmp_path).tries)
    assert row["tried"]["valid"] == max(first, second)
    assert f"test 30% micro_f1 {row['f1']['30% micro_f1']:.4f}" in capsys.readouterr().err


@pytest.mark.slow
def test_workers_make_the_same_rows(tmp_path):
    one = run(tmp_path / "one", sampler=["bernoulli"])
    two = run(tmp_path / "two", sampler=["bernoulli"], workers=2)
    assert [row["test"] for row in one.rows] == [row["test"] for row in two.rows]
