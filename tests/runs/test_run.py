"""Asking a run: predictions, scores, neighbours, embeddings."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open

import nscaching as ns
from nscaching import KnowledgeGraph, Run, TrainConfig, UserError
from nscaching.models import SCORING

from ..conftest import graph_of, random_graph, random_model
from ..training.helpers import ring, train, write_folder


def run_of(graph, scoring="distmult", dim=5, seed=0):
    model = random_model(scoring, graph.num_entities, graph.num_relations, dim, seed=seed)
    return Run(TrainConfig(scoring=scoring, dim=dim), graph, model)


@pytest.fixture
def run():
    return run_of(random_graph())


def facts(graph):
    return {
        (graph.entities[h], graph.relations[r], graph.entities[t]): split
        for split in ("train", "valid", "test")
        for h, r, t in graph.split(split).tolist()
    }


# Predictions --------------------------------------------------------------------------------------


def question(run, side, anchor, relation, **options):
    ask = run.predict_tails if side == "tail" else run.predict_heads
    return ask(*((anchor, relation) if side == "tail" else (relation, anchor)), **options)


@pytest.mark.parametrize("side", ["head", "tail"])
def test_known_facts_of_all_splits_are_left_out(run, side):
    known = facts(run.graph)
    left_out = 0
    for anchor in run.graph.entities:
        for relation in run.graph.relations:
            answers = question(run, side, anchor, relation, k=1000, unlikely=True)
            triples = {(p.head, p.relation, p.tail) for p in answers}
            assert not triples & set(known)
            assert all(not p.known and p.split is None for p in answers)
            assert len(triples) == len(answers)
            left_out += run.graph.num_entities - len(answers)
    without_loops = run.graph.num_relations - len(run.graph.relations_with_loops)
    assert left_out == len(known) + run.graph.num_entities * without_loops


@pytest.mark.parametrize("side", ["head", "tail"])
def test_known_facts_are_marked_with_their_split_when_asked_for(run, side):
    known = facts(run.graph)
    found = {}
    for anchor in run.graph.entities:
        for relation in run.graph.relations:
            answers = question(run, side, anchor, relation, k=1000, known=True, unlikely=True)
            loops = run.graph.relation_id(relation) in run.graph.relations_with_loops
            assert len(answers) == run.graph.num_entities - (not loops)
            for p in answers:
                assert p.known == ((p.head, p.relation, p.tail) in known)
                if p.known:
                    found[p.head, p.relation, p.tail] = p.split
    assert found == known


@pytest.mark.parametrize("side", ["head", "tail"])
@pytest.mark.parametrize("scoring", SCORING)
def test_answers_are_the_best_first_with_the_score_of_the_model(scoring, side):
    run = run_of(random_graph(), scoring)
    for by in ("score", "probability"):
        answers = question(run, side, "e3", "r1", k=1000, known=True, by=by)
        ordered = [getattr(p, by) for p in answers]
        assert ordered == sorted(ordered, reverse=True)
        scores = [p.score for p in answers]
        again = run.score([(p.head, p.relation, p.tail) for p in answers])
        assert np.allclose(again, scores, atol=1e-4)
        few = question(run, side, "e3", "r1", k=4, known=True, by=by)
        assert few == answers[:4]


def test_a_triple_in_train_and_test_counts_as_seen():
    graph = KnowledgeGraph(["a", "b"], ["r"], [[0, 0, 1]], None, [[0, 0, 1]])
    assert run_of(graph).split_of("a", "r", "b") == "train"
    assert run_of(graph).split_of("b", "r", "a") is None


def test_k_is_at_least_one_and_at_most_everything(run):
    assert len(run.predict_tails("e1", "r1", k=1)) == 1
    for k in (0, -3):
        with pytest.raises(UserError, match="k must be at least 1"):
            run.predict_tails("e1", "r1", k=k)
        with pytest.raises(UserError, match="k must be at least 1"):
            run.neighbours("e1", k=k)
    for wrong in ("3", 1.0, None, True):
        said = f"k must be a whole number, at least 1, not {wrong!r}"
        with pytest.raises(UserError, match=said):
            run.predict_tails("e1", "r1", k=wrong)
        with pytest.raises(UserError, match=said):
            run.neighbours("e1", k=wrong)
    assert run.neighbours("e1", k=np.int64(3)) == run.neighbours("e1", k=3)
    assert len(run.neighbours("e1", k=10**6)) == run.graph.num_entities - 1


def test_names_and_ids_are_the_same_question(run):
    number = np.int64(7)
    assert run.predict_tails(number, 2) == run.predict_tails("e7", "r2")
    assert run.predict_heads("r2", 7) == run.predict_heads(2, "e7")
    assert run.neighbours(7) == run.neighbours("e7")
    assert run.split_of(*run.graph.valid[0]) == "valid"


def test_a_number_that_may_be_a_name_or_an_id_is_refused():
    run = run_of(KnowledgeGraph(["0", "50", "1"], ["7"], [[0, 0, 1], [1, 0, 2]]))
    assert run.predict_tails("50", "7") == run.predict_tails("50", 0)
    assert run.neighbours(0) == run.neighbours("0")  # the same row either way
    for ask in (
        lambda: run.neighbours(1),
        lambda: run.predict_tails(50, "7"),
        lambda: run.predict_tails("50", np.int64(7)),
        lambda: run.score(run.graph.train),
    ):
        with pytest.raises(UserError, match="could mean two things; give names as text"):
            ask()
    with pytest.raises(UserError, match="by name or id, not True"):
        run.neighbours(True)


def test_names_and_ids_that_are_not_there(run):
    with pytest.raises(UserError, match=r"no entity 'e7x'; did you mean 'e7'"):
        run.predict_tails("e7x", "r2")
    with pytest.raises(UserError, match="no relation 'R99'"):
        run.predict_tails("e7", "R99")
    for wrong in (25, -1):
        with pytest.raises(UserError, match=f"no entity {wrong}; ids go from 0 to 24"):
            run.predict_heads("r1", wrong)
    with pytest.raises(UserError, match="by name or id"):
        run.neighbours(1.5)
    for nothing in (None, 1.5):
        with pytest.raises(UserError, match=f"Give the entity by name or id, not {nothing}"):
            run.predict_tails(nothing, "r1")
        with pytest.raises(UserError, match=f"Give the entity by name or id, not {nothing}"):
            run.predict_heads("r1", nothing)


def test_an_entity_answers_itself_only_where_the_relation_has_such_a_fact():
    # r0 has a loop at e3, r1 has none.
    graph = graph_of([(0, 0, 1), (3, 0, 3), (1, 1, 2), (2, 1, 0)])
    run = run_of(graph, "distmult")
    assert graph.relations_with_loops == {0}
    with_loops = {answer.tail for answer in run.predict_tails("e0", "r0", k=9)}
    without = {answer.tail for answer in run.predict_tails("e1", "r1", k=9)}
    heads = {answer.head for answer in run.predict_heads("r1", "e1", k=9)}
    assert "e0" in with_loops
    assert without == {"e0", "e3"}
    assert "e1" not in heads


def test_predictions_as_plain_values(run):
    (answer,) = run.predict_tails("e1", "r1", k=1)
    old = {"head", "relation", "tail", "score", "split", "known"}
    new = {"probability", "seen", "recurs", "contradicts", "rejected", "flags"}
    assert set(answer.as_dict()) == old | new
    json.dumps(answer.as_dict())


# Scores, neighbours, embeddings -------------------------------------------------------------------


@pytest.mark.parametrize("scoring", SCORING)
def test_score_is_the_score_of_the_model(scoring):
    run = run_of(random_graph(), scoring)
    triples = run.graph.test
    expected = run.model.score(*torch.from_numpy(triples).long().unbind(1)).numpy()
    assert np.allclose(run.score(triples), expected)
    named = [
        (run.graph.entities[h], run.graph.relations[r], run.graph.entities[t])
        for h, r, t in triples
    ]
    assert np.allclose(run.score(named), expected)


def test_scores_of_nothing_and_of_nonsense(run):
    assert run.score([]).shape == (0,)
    for wrong in (("e1", "r1", "e2"), [("e1", "r1")], [("e1", "r1", "e2", "e3")], ["abc"]):
        with pytest.raises(UserError, match="list of \\(head, relation, tail\\)"):
            run.score(wrong)


def test_neighbours_are_the_most_similar_others(run):
    vectors = run.embeddings()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = unit @ unit[4]
    found = run.neighbours("e4", k=6)
    assert "e4" not in [n.entity for n in found]
    order = [e for e in np.argsort(-cosine) if e != 4][:6]
    assert [n.entity for n in found] == [f"e{e}" for e in order]
    assert np.allclose([n.similarity for n in found], cosine[order], atol=1e-5)


def test_embeddings_are_rows_in_the_order_of_the_names():
    run = run_of(random_graph(), "complex", dim=6)
    assert run.embeddings().shape == (25, 12)
    assert run.embeddings("relation").shape == (4, 12)
    assert (run.embeddings()[run.graph.entity_id("e7")] == run.model.entity[7].numpy()).all()
    with pytest.raises(UserError, match="'entity' or 'relation', not 'edges'"):
        run.embeddings("edges")


def test_changing_embeddings_does_not_change_the_run(run):
    before = run.score([(1, 1, 2)])
    run.embeddings()[:] = 0
    assert run.score([(1, 1, 2)]) == before


# Classification -----------------------------------------------------------------------------------


def test_classify_gives_labels_and_margins_to_the_threshold(run):
    names = [
        (run.graph.entities[h], run.graph.relations[r], run.graph.entities[t])
        for h, r, t in run.graph.test.tolist()
    ]
    labels, margins = run.classify(names)
    assert labels.dtype == bool
    thresholds = run.thresholds(any_type=True).values[run.graph.test[:, 1]]
    assert np.allclose(margins, run.score(names) - thresholds, atol=1e-6)
    assert np.array_equal(labels, margins >= 0)
    by_id = run.classify(run.graph.test)
    assert np.array_equal(by_id.margins, margins)
    assert run.classify([]).labels.shape == (0,)


def test_classify_agrees_with_the_report(run):
    report = run.classification("test", seed=4)
    labels, _ = run.classify(run.graph.test, seed=4, any_type=False)
    negatives = ns.evaluation.seeded_negatives(run.graph, "test", ns.evaluation.Drawing(4))
    wrong, _ = run.classify(negatives.triples, seed=4, any_type=False)
    right = labels.sum() + (~wrong).sum()
    assert report.accuracy == pytest.approx(right / (len(labels) + len(wrong)))
    assert report.split == "test"
    assert report.seconds > 0


def test_thresholds_are_found_once_for_each_way_to_draw(run):
    assert run.thresholds(seed=1) is run.thresholds(seed=1)
    assert run.thresholds(seed=1) is not run.thresholds(seed=2)
    assert run.thresholds(seed=1) is not run.thresholds(seed=1, replaced="head")
    assert run.thresholds(seed=1) is not run.thresholds(seed=1, any_type=True)


def test_what_cannot_be_classified(run):
    with pytest.raises(UserError, match="no relation 'r9'"):
        run.classify([("e1", "r9", "e2")])
    with pytest.raises(UserError, match="list of"):
        run.classify(["e1"])
    with pytest.raises(UserError, match="no split 'tests'"):
        run.classification("tests")
    with pytest.raises(UserError, match="seed"):
        run.classification("test", seed=-1)
    without = run_of(KnowledgeGraph(["a", "b"], ["r"], [[0, 0, 1]], None, [[1, 0, 0]]))
    with pytest.raises(UserError, match="no valid triples"):
        without.classification("test")


# The folder ---------------------------------------------------------------------------------------


def test_a_run_read_back_is_the_run(tmp_path):
    graph = ring()
    run = train(graph, out=tmp_path / "R", epochs=4)
    loaded = ns.load_run(tmp_path / "R", "cpu")
    assert loaded.config == run.config
    assert loaded.graph.fingerprint == graph.fingerprint
    assert loaded.evaluate("test").mrr == run.summary["test"]["mrr"]
    assert loaded.predict_tails("e1", "r0") == run.predict_tails("e1", "r0")


def test_the_model_can_be_read_by_another_program(tmp_path):
    run = train(ring(), out=tmp_path / "R", scoring="transd")
    names = (tmp_path / "R" / "entities.txt").read_text(encoding="utf-8").splitlines()
    relations = (tmp_path / "R" / "relations.txt").read_text(encoding="utf-8").splitlines()
    with safe_open(tmp_path / "R" / "model.safetensors", framework="np") as file:
        assert sorted(file.keys()) == ["entity", "relation"]
        entity, relation = file.get_tensor("entity"), file.get_tensor("relation")
    assert names == run.graph.entities
    assert relations == run.graph.relations
    assert entity.shape == (30, 16)
    assert relation.shape == (3, 16)
    assert (entity == run.embeddings()).all()


def test_the_run_does_not_need_the_files_it_was_trained_on(tmp_path):
    file = write_folder(ring(entities=60, held_out=0), tmp_path / "g") / "train.txt"
    run = train(file, out=tmp_path / "R", split=0.1)
    file.unlink()
    report = ns.load_run(tmp_path / "R", "cpu").evaluate("test")
    assert report.count == 36
    assert report.mrr == run.summary["test"]["mrr"]


def test_a_graph_without_valid_and_test_is_split_as_its_file_is(tmp_path):
    file = write_folder(ring(entities=60, held_out=0), tmp_path / "g") / "train.txt"
    graph = ns.load_graph(file)
    for options in ({}, {"split": 0.1, "seed": 3}):
        named, given = (train(each, **options).graph for each in (file, graph))
        assert len(given.test) == len(given.valid) == round(options.get("split", 0.05) * 180)
        assert given.fingerprint == named.fingerprint
    assert len(graph.test) == 0
    assert train(graph, split=0.0).graph is graph
    whole = ring()
    assert train(whole, split=0.1).graph is whole


def test_a_folder_of_training_triples_alone_is_split_where_a_share_is_named(tmp_path, capsys):
    folder = write_folder(ring(entities=60, held_out=0), tmp_path / "g")
    (folder / "valid.txt").unlink(missing_ok=True)
    (folder / "test.txt").unlink(missing_ok=True)
    assert len(train(folder, epochs=1).graph.valid) == 0
    first = train(folder, out=tmp_path / "R", epochs=1, split=0.1)
    assert len(first.graph.valid) == len(first.graph.test) == 18
    again = ns.train(folder, out=tmp_path / "R", epochs=2, resume=True, progress="none")
    assert again.graph.fingerprint == first.graph.fingerprint
    capsys.readouterr()
    whole = write_folder(ring(), tmp_path / "whole")
    ns.train(whole, epochs=1, dim=4, split=0.1, progress="lines")
    remark = "--split has no effect: whole has valid or test triples of its own."
    assert capsys.readouterr().err.count(remark) == 1


def test_a_graph_that_was_split_goes_on_whole_or_split(tmp_path):
    whole = ring(entities=60, held_out=0)
    first = train(whole, out=tmp_path / "R", split=0.1)
    for epochs, graph in ((3, whole), (4, first.graph), (5, None)):
        run = ns.train(graph, out=tmp_path / "R", epochs=epochs, resume=True, progress="none")
        assert run.summary["epochs"] == epochs
        assert run.graph.fingerprint == first.graph.fingerprint
    with pytest.raises(UserError, match="another graph"):
        train(ring(entities=61, held_out=0), out=tmp_path / "R", resume=True)


def test_an_empty_split_has_no_metrics(tmp_path):
    run = train(ring(held_out=0), split=0)
    with pytest.raises(UserError, match="test split is empty; there is nothing to rank") as caught:
        run.evaluate("test")
    assert "holds out only facts whose entities and relations have others" in str(caught.value)
    bare = KnowledgeGraph(["a", "b", "c"], ["r"], [[0, 0, 1]], [[1, 0, 2]])
    with pytest.raises(UserError, match="test split is empty; there is nothing to classify"):
        run_of(bare).classification("test")


def test_labelled_triples_stay_with_the_run(tmp_path):
    graph = KnowledgeGraph(
        ["a", "b", "c"],
        ["r"],
        [[0, 0, 1], [1, 0, 2]],
        labelled={"test": [[0, 0, 2, 1], [2, 0, 0, -1]]},
    )
    train(graph, out=tmp_path / "R")
    kept = ns.load_run(tmp_path / "R").graph.labelled
    assert kept["test"].tolist() == [[0, 0, 2, 1], [2, 0, 0, -1]]


def test_an_unknown_way_to_show_progress_is_refused():
    with pytest.raises(UserError, match="progress must be one of auto, bar, lines, none"):
        train(ring(), progress="dots")


def test_a_run_read_back_has_its_summary(tmp_path):
    trained = train(ring(), out=tmp_path / "R", epochs=3, dim=4)
    loaded = ns.load_run(tmp_path / "R")
    kept = set(trained.summary) - {"device", "extra_parameters"}
    assert {name: loaded.summary[name] for name in kept} == {
        name: trained.summary[name] for name in kept
    }
    assert loaded.summary["test"]["mrr"] == trained.summary["test"]["mrr"]
    (tmp_path / "R" / "checkpoint" / "state.safetensors").unlink()
    assert ns.load_run(tmp_path / "R").summary["epochs"] == 3
