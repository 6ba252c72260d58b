"""Embeddings of nodes are tuned by the same search: the mean over seeds, never the test nodes."""

import csv
import json

import numpy as np
import pytest

import nscaching as ns
from nscaching import NodeConfig, TrainingInterrupted, UserError
from nscaching.experiments.tune import objective
from nscaching.nodes.graph import Labels
from nscaching.nodes.tasks import classification_scores, hold_out_edges

from ...nodes.helpers import graph_from
from .helpers import untimed_result

SMALL = {"dim": 8, "walks_per_node": 2, "walk_length": 8, "window": 2, "epochs": 1, "lr": 0.02}


def search(graph, out, **options):
    """Search quietly and small unless told otherwise."""
    told = {"space": "nodes", "trials": 4, "seeds": 2, "method": "random", **SMALL, **options}
    return ns.tune(graph, out=out, progress="none", **told)


@pytest.fixture(scope="module")
def communities():
    """Three groups of twenty nodes; an edge in three joins two groups."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(3, dtype=np.int32), 20)
    pairs = np.column_stack(np.triu_indices(60, k=1))
    likely = np.where(group[pairs[:, 0]] == group[pairs[:, 1]], 0.2, 0.05)
    graph = graph_from(pairs[rng.random(len(pairs)) < likely], nodes=60)
    object.__setattr__(graph, "labels", Labels(["a", "b", "c"], group))
    return graph


@pytest.fixture(scope="module")
def whole(communities, tmp_path_factory):
    """A search that was never stopped, with enough trials for importance."""
    return search(communities, tmp_path_factory.mktemp("search") / "S", trials=9, seed=3)


def test_a_score_is_the_mean_over_seeds_on_validation_nodes(whole, communities):
    trial = whole.trials[4]
    scores = []
    for seed in (3, 4):
        told = {**SMALL, **trial.config, "seed": seed}
        vectors = ns.embed_nodes(communities, progress="none", **told).vectors
        asked = {"shares": (0.5,), "seed": seed, "validate": True}
        scores.append(classification_scores(vectors, communities.labels, **asked)[0, :, 0].mean())
    assert trial.score == pytest.approx(np.mean(scores))
    assert scores[0] != scores[1]


def test_the_first_trial_is_the_base_and_the_rest_is_searched(whole):
    first = {"negatives": 5, "alpha2": 0.0, "alpha3": 1.0, "cache_size": 50, "candidates": 50}
    assert whole.trials[0].config == first
    assert len({str(trial.config) for trial in whole.trials}) == 9


def test_the_best_file_is_taken_by_embed_nodes(whole, communities):
    assert whole.best.score == max(trial.score for trial in whole.trials)
    embedding = ns.embed_nodes(communities, config=whole.folder.best, progress="none")
    assert embedding.config == NodeConfig(
        **{**SMALL, **whole.best.config, "seed": 3, "data": "graph"}
    )


def test_files_call_the_score_by_its_name(whole):
    stored = json.loads(whole.folder.result.read_text())
    assert stored["metric"] == "micro_f1"
    assert stored["best"]["micro_f1"] == whole.best.score
    assert [trial["micro_f1"] for trial in stored["trials"]] == [t.score for t in whole.trials]
    assert (stored["importance"] is None) == (stored["importance_note"] is not None)
    with whole.folder.table.open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["valid_micro_f1"]) for row in rows] == [t.score for t in whole.trials]
    assert len(whole.pictures) == 1 + (whole.importance is not None)


def test_without_classes_held_out_edges_are_asked_and_those_for_the_end_are_not(tmp_path):
    rng = np.random.default_rng(1)
    pairs = np.column_stack(np.triu_indices(40, k=1))
    graph = graph_from(rng.permutation(pairs)[:200], nodes=40)
    result = search(graph, tmp_path / "S", trials=2, seeds=1, held_out=0.2)
    assert result.as_dict()["best"]["auc"] == result.best.score
    assert result.config.held_out == 0.2
    edges, keep = hold_out_edges(graph, 0.2, seed=0)
    rest = graph.without_edges(keep)
    trial = result.trials[1]
    told = {**SMALL, **trial.config, "held_out": 0.1}
    embedding = ns.embed_nodes(rest, progress="none", **told)
    assert embedding.predict_links()["auc"] == pytest.approx(trial.score)
    asked = {tuple(edge) for edge in embedding.held_out}
    assert not asked & {tuple(edge) for edge in edges[~keep]}


def test_a_stopped_search_goes_on_with_the_next_seed(communities, tmp_path, monkeypatch):
    unbroken = search(communities, tmp_path / "whole")
    real, calls = objective.embed_nodes, []

    def stop_after(count):
        def embed(graph, **options):
            if len(calls) == count:
                raise TrainingInterrupted("Ctrl-C")
            calls.append(options["seed"])
            return real(graph, **options)

        monkeypatch.setattr(objective, "embed_nodes", embed)

    stop_after(5)
    with pytest.raises(TrainingInterrupted, match="tune --resume --out"):
        search(communities, tmp_path / "S")
    with (tmp_path / "S" / "trials" / "003" / "seeds.jsonl").open("a") as file:
        file.write('{"seed": 1, "ep')  # what a killed process half wrote
    stop_after(None)
    resumed = ns.tune(out=tmp_path / "S", resume=True, progress="none")
    assert untimed_result(resumed, "micro_f1") == untimed_result(unbroken, "micro_f1")
    assert calls == [0, 1] * 4  # none was embedded twice
    more = ns.tune(communities, out=tmp_path / "S", resume=True, trials=5, progress="none")
    assert len(more.trials) == 5


def test_more_is_searched_on_request_and_what_is_given_is_fixed(communities, tmp_path):
    told = {"space": "nodes+", "trials": 2, "seeds": 1, "alpha3": 0.5}
    result = search(communities, tmp_path / "S", **told)
    assert {"fresh", "cached_neighbours", "update_every", "rescale"} < set(result.best.config)
    assert "alpha3" not in result.best.config
    assert result.config.alpha3 == 0.5


def test_mistakes_are_named(communities, whole, tmp_path):
    with pytest.raises(UserError, match="nscaching, not seedne"):
        search(communities, tmp_path / "S", sampler="seedne")
    with pytest.raises(UserError, match="unknown option 'scoring'"):
        search(communities, tmp_path / "S", scoring="transe")
    with pytest.raises(UserError, match="unknown option 'seeds'"):
        ns.tune("world", out=tmp_path / "S", seeds=2)
    with pytest.raises(UserError, match="go with --space nodes"):
        ns.tune("world", out=tmp_path / "S", labels=tmp_path / "labels.txt")
    done = whole.folder.path
    with pytest.raises(UserError, match="not on this graph"):
        ns.tune(graph_from([(0, 1), (1, 2)]), out=done, resume=True)
    with pytest.raises(UserError, match="begun with seeds 2, not 5"):
        ns.tune(out=done, resume=True, seeds=5)
    with pytest.raises(UserError, match="by one process; drop --processes"):
        ns.tune(out=done, resume=True, processes=2)
    with pytest.raises(UserError, match="drop --labels"):
        ns.tune(out=done, resume=True, labels=tmp_path / "labels.txt")
    assert not (tmp_path / "S").exists()
