"""Traces of whole runs: what is in them, and that a stop does not change them."""

import os
import signal

import pytest

import nscaching as ns
from nscaching import UserError
from nscaching.training import RunFolder
from nscaching.training.step import TrainingStep
from nscaching.training.tracing.snapshots import find_row

from ...training.helpers import ALL_STATE, go_on, kept_bits, ring, train
from ...training.test_interrupt import signal_at, stopped

ROW, OTHER_ROW, TRIPLE = "e3|r1|?", "?|r0|e9", "e3|r1|e5"
TRACED = {
    **ALL_STATE,
    "epochs": 6,
    "batch_size": 8,
    "valid_every": 2,
    "trace_row": [ROW, OTHER_ROW],
    "trace_triple": [TRIPLE],
    "trace_window": 3,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traced") / "whole"
    return train(ring(), out=folder, **TRACED)


def of(run, event):
    return [line for line in run.trace if line["event"] == event]


def test_a_line_per_epoch_and_snapshots_with_the_validations(whole):
    assert [line["epoch"] for line in of(whole, "epoch")] == [1, 2, 3, 4, 5, 6]
    assert [line["epoch"] for line in of(whole, "row") if line["row"] == ROW] == [0, 2, 4, 6]
    sides = [(line["epoch"], line["side"]) for line in of(whole, "gradients")]
    assert sides == [(epoch, side) for epoch in (0, 2, 4, 6) for side in ("head", "tail")]
    assert all(0 <= line["repeated"] <= 1 for line in of(whole, "epoch"))


def test_the_folder_gives_the_same_trace(whole):
    assert RunFolder(whole.folder.path).read_trace() == whole.trace
    assert ns.load_run(whole.folder.path).trace == whole.trace


def test_a_row_is_what_the_cache_holds_by_name(whole):
    graph = whole.graph
    _, parts = ns.training.checkpoint.load(whole.folder.checkpoint)
    anchor, relation = graph.entity_id("e9"), graph.relation_id("r0")
    pairs = graph.rows.head
    row = ((pairs.anchor == anchor) & (pairs.relation == relation)).argmax()
    held = {graph.entities[each] for each in parts["sampler"]["head_ids"][row].tolist()}
    snapshot = [line for line in of(whole, "row") if line["row"] == OTHER_ROW][-1]
    assert snapshot["held"] == len(held) == 8
    assert {each["entity"] for each in snapshot["hardest"]} == held
    assert set(snapshot["random"]) < held
    assert len(set(snapshot["random"])) == 5
    scores = [each["score"] for each in snapshot["hardest"]]
    assert scores == sorted(scores, reverse=True)
    for each in snapshot["hardest"]:
        assert each["split"] == whole.split_of(each["entity"], "r0", "e9")


@pytest.mark.parametrize("step", [1, 5, 9, 10, 31])
def test_a_stopped_run_ends_with_the_trace_of_one_that_never_stopped(
    tmp_path, monkeypatch, whole, step
):
    folder = tmp_path / "R"
    signal_at(monkeypatch, TrainingStep, "__call__", step, signal.SIGTERM)
    stopped(monkeypatch, folder, **TRACED)
    go_on(folder)
    assert RunFolder(folder).read_trace() == whole.trace
    assert kept_bits(folder) == kept_bits(whole.folder.path)


def test_lines_after_the_last_checkpoint_are_written_again(tmp_path, whole):
    folder = RunFolder(tmp_path / "R")
    shorter = {**TRACED, "epochs": 4}
    train(ring(), out=folder.path, **shorter)
    with folder.trace.open("a") as file:  # what a killed process wrote after its checkpoint
        file.write('{"event": "epoch", "epoch": 5, "negatives": 1}\n{"event": "ro')
    go_on(folder.path, epochs=6)
    assert folder.read_trace() == whole.trace


def test_a_new_run_in_the_folder_leaves_nothing_of_the_old_trace(tmp_path):
    train(ring(), out=tmp_path / "R", trace=True)
    train(ring(), out=tmp_path / "R", overwrite=True)
    assert not (tmp_path / "R" / "trace.jsonl").exists()


def test_while_pretraining_there_is_no_cache_to_show():
    run = train(ring(), epochs=4, pretrain_epochs=2, valid_every=1, trace_row=ROW, scoring="transe")
    assert [line["epoch"] for line in of(run, "row")] == [3, 4]
    shares = [line["false_cached"] is not None for line in of(run, "epoch")]
    assert shares == [False, False, True, True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trace_row": "e3|r1"}, r"must be HEAD\|RELATION\|\? or \?\|RELATION\|TAIL, not 'e3\|r1'"),
        ({"trace_row": "e3|r1|e5"}, "must have a [?] in place"),
        ({"trace_row": "?|r1|?"}, "must have a [?] in place"),
        ({"trace_row": "e33|r1|?"}, "no entity 'e33'; did you mean"),
        ({"trace_row": "e3|r7|?"}, "no relation 'r7'"),
        ({"trace_triple": "e3|r1|?"}, "no entity '[?]'"),
        ({"trace_row": "e3|r1|?", "sampler": "uniform"}, "sampler uniform has none"),
        ({"trace_row": [3]}, "trace_row must be text, not 3"),
        ({"trace": True, "trace_window": 0}, "trace_window must be at least 1"),
    ],
)
def test_what_cannot_be_traced_is_refused(options, said):
    with pytest.raises(UserError, match=said):
        train(ring(), **options)


def test_a_pair_without_a_training_triple_has_no_row():
    graph = ns.KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "s", "a")])
    with pytest.raises(UserError, match="no such row"):
        train(graph, trace_row="b|r|?")


def test_names_with_bars_are_separated_by_tabs():
    graph = ns.KnowledgeGraph.from_triples([("a|b", "r", "c"), ("c", "r", "d"), ("d", "r", "a|b")])
    run = train(graph, trace_row="a|b\tr\t?", valid_every=1)
    assert [line["held"] for line in of(run, "row")] == [2, 2, 2]


@pytest.mark.data
@pytest.mark.skipif(
    not os.environ.get("NSCACHING_DATA"), reason="NSCACHING_DATA names no data sets"
)
def test_the_row_of_the_papers_table_is_found_by_name():
    graph = ns.load_graph("FB13")
    row = find_row(graph, "manorama|profession|?")
    pairs = graph.rows.tail
    answers = pairs.answers[pairs.offsets[row.row] : pairs.offsets[row.row + 1]]
    assert [graph.entities[each] for each in answers] == ["actor"]
