"""Definitions: names, labels, cells, and that each cell can be trained with its settings."""

import itertools

import pytest

from nscaching.errors import UserError
from nscaching.experiments.paper import definition, definitions
from nscaching.experiments.paper.definitions import (
    chosen,
    printed,
    searched,
    settings_of,
    shortened,
)
from nscaching.experiments.paper.making import named_traces
from nscaching.runs.api import make_config

from ...conftest import random_graph

ALL = list(definitions())


def test_all_that_the_issue_names_is_there():
    assert ALL[:5] == ["table-7", "table-8", "table-9", "table-10", "table-11"]
    assert ALL[5:] == [*(f"figure-{n}" for n in (2, *range(4, 15))), "losses"]
    labels = {name: each.label for name, each in definitions().items()}
    assert labels["table-7"] == "tb-perf"
    assert labels["figure-4"] == "fig-perf-transd"


def test_table_7_has_the_cells_that_the_paper_prints():
    cells = definition("table-7").cells(dataset=["WN18RR"])
    rows = [(c.scoring, c.sampler, c.mode) for c in cells]
    assert len(rows) == len(set(rows)) == 6 * 6 + 1
    assert ("simple", "nscaching", "auto") in rows
    assert not any(sampler == "igan" for _, sampler, _ in rows)
    on_wn18 = definition("table-7").cells(dataset=["WN18"], sampler=["igan"])
    assert {c.scoring for c in on_wn18} == {"transe", "transh", "transd"}


def test_table_7_has_what_no_earlier_run_had():
    there = {(c.dataset, c.scoring, c.sampler, c.mode) for c in definition("table-7").cells()}
    for scoring in ("transe", "transh", "transd"):
        for dataset in ("WN18", "FB15K"):
            for sampler, mode in itertools.product(("kbgan", "igan"), ("pretrain", "scratch")):
                assert (dataset, scoring, sampler, mode) in there
    assert ("WN18", "transh", "nscaching", "scratch") in there
    assert ("FB15K", "transd", "nscaching", "scratch") in there


def test_a_cell_the_paper_leaves_out_is_run_with_bernoulli_all_the_same():
    cells = definition("table-7").cells(dataset=["YAGO3-10"], scoring=["distmult"])
    assert ("bernoulli", "scratch") in {(c.sampler, c.mode) for c in cells}


def test_figure_6_varies_one_temperature_given_another():
    cells = [c for c in definition("figure-6").cells() if c.panel == "alpha1"]
    assert {(c.options["alpha1"], c.options["alpha3"]) for c in cells} == {
        (a, b) for a in (0, 0.01, 0.1, 0.5, 1) for b in (0, 1, 100)
    }


def test_figure_11_moves_both_sizes_together():
    cells = [c for c in definition("figure-11").cells() if c.kind == "train"]
    assert [(c.options["cache_size"], c.options["candidates"]) for c in cells] == [
        (10, 10), (30, 30), (50, 50)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_every_cell_has_settings_that_training_takes(name):
    graph = random_graph()
    for cell in definition(name).cells():
        if cell.kind == "nodes":
            continue
        settings = settings_of(cell)
        for part in ("space", "trials"):  # of a search, not of its runs
            settings.pop(part, None)
        for options in (settings.pop("trial", {}), {}):
            config = make_config(graph, named_traces({**settings, **options}, graph, True))
        assert config.sampler == cell.sampler
        for option, value in cell.options.items():
            if option not in ("trace_row", "trace_triples"):
                assert getattr(config, option) == value


def test_a_search_does_not_fix_what_its_space_has():
    (cell,) = definition("table-9").cells(dataset=["FB15K-237"])
    settings = settings_of(cell)
    assert settings["space"] == "sampler+"
    assert not {"alpha3", "rescale", "known_positives"} & settings.keys()
    assert shortened(settings, 3)["trial"]["epochs"] == 3


def test_modes_change_what_they_should():
    def of(mode, sampler="nscaching"):
        (cell,) = definition("table-7").cells(
            dataset=["WN18RR"], scoring=["simple"], sampler=[sampler], mode=[mode]
        )
        return settings_of(cell)

    entry = chosen("WN18RR", "simple")
    assert of("scratch")["epochs"] == of("pretrain")["epochs"] == entry["options"]["epochs"]
    assert of("pretrain")["pretrain_epochs"] == entry["pretrain_epochs"]
    assert of("pretrained", "bernoulli")["epochs"] == entry["pretrain_epochs"]
    auto = of("auto")
    assert {name: auto[name] for name in searched("WN18RR")} == {
        "alpha1": 0.013, "alpha2": 0, "alpha3": 2.759, "cache_size": 90, "candidates": 50
    }  # fmt: skip


def test_the_papers_numbers_are_fractions():
    row = {"dataset": "WN18RR", "scoring": "simple", "sampler": "nscaching", "mode": "auto"}
    assert printed("link_prediction", row) == {"mrr": 0.4388, "hits@10": 0.4836}
    assert printed("link_prediction", {**row, "mode": "smac"}) == {"mrr": 0.4388, "hits@10": 0.4836}
    row |= {"scoring": "transd", "mode": "scratch"}
    assert printed("classification", row) == {"accuracy": 0.8764}
    row |= {"dataset": "cora", "sampler": "NSCaching"}
    assert printed("nodes", row)["70% micro_f1"] == 0.8413


def test_every_setting_says_how_it_was_chosen():
    for cell in definition("table-7").cells():
        entry = chosen(cell.dataset, cell.scoring)
        assert entry["tried"] >= 0
        assert entry["how"]


def test_unknown_names_are_refused_with_a_hint():
    with pytest.raises(UserError, match="did you mean 'table-7'"):
        definition("table-77")
    with pytest.raises(UserError, match="no dataset 'WN18R'; did you mean 'WN18RR'"):
        definition("table-7").cells(dataset=["WN18R"])
