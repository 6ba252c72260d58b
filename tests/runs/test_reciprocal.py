"""A run with reciprocal relations answers every question that other runs answer."""

import numpy as np
import pytest
import torch
from pyarrow import parquet

import nscaching as ns
from nscaching import UserError
from nscaching.models import Side

from ..training.helpers import ring, train

OPTIONS = {"scoring": "complex", "reciprocal": True, "epochs": 3, "lr": 0.05, "valid_every": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reciprocal") / "R"
    train(ring(), out=folder, **OPTIONS)
    return ns.load_run(folder, "cpu")


def slow_scores(run, side, anchor, relation):
    """Score every entity as the answer of one question, from rows: heads by the inverse's row."""
    model = run.model
    row = relation + (run.graph.num_relations if side is Side.HEAD else 0)
    e = model.entity[anchor].expand_as(model.entity)
    return model.scoring.score(e, model.relation[row].expand(len(e), -1), model.entity)


def test_the_folder_brings_back_both_halves(run):
    trained = train(ring(), **OPTIONS)
    assert run.model.reciprocal
    assert run.config.reciprocal
    assert run.model.relation.shape[0] == 2 * run.graph.num_relations
    assert torch.equal(run.model.entity, trained.model.entity)
    assert torch.equal(run.model.relation, trained.model.relation)


def test_evaluation_asks_for_heads_through_the_inverse_relations(run):
    graph, ranks = run.graph, []
    known = {tuple(t) for split in ("train", "valid", "test") for t in graph.split(split).tolist()}
    for h, r, t in graph.test.tolist():
        for side, anchor, true in ((Side.HEAD, t, h), (Side.TAIL, h, t)):
            scores = slow_scores(run, side, anchor, r)
            others = [
                e
                for e in range(graph.num_entities)
                if e != true and ((e, r, t) if side is Side.HEAD else (h, r, e)) not in known
            ]
            ranks.append(1 + int((scores[others] > scores[true]).sum()))
    assert run.evaluate("test").mrr == pytest.approx(np.mean(1 / np.array(ranks)))


def test_predictions_are_ordered_by_the_scores_of_their_question(run):
    graph = run.graph
    for side, ask in ((Side.TAIL, run.predict_tails), (Side.HEAD, run.predict_heads)):
        anchor, relation = 4, 1
        names = graph.entities[anchor], graph.relations[relation]
        found = ask(*(names if side is Side.TAIL else names[::-1]), k=5, by="score")
        scores = slow_scores(run, side, anchor, relation)
        mine = [
            scores[graph.entity_ids[p.tail if side is Side.TAIL else p.head]].item() for p in found
        ]
        assert len(found) == 5
        assert mine == sorted(mine, reverse=True)
        assert [p.score for p in found] == pytest.approx(mine, rel=1e-4)


def test_the_score_of_a_triple_is_the_mean_of_both_questions(run):
    found = run.score(run.graph.test)
    for (h, r, t), score in zip(run.graph.test.tolist(), found, strict=True):
        head = slow_scores(run, Side.HEAD, t, r)[h].item()
        tail = slow_scores(run, Side.TAIL, h, r)[t].item()
        assert score == pytest.approx((head + tail) / 2, rel=1e-4, abs=1e-6)


def test_claims_are_classified_by_that_score(run):
    triples = run.graph.test
    labels, margins = run.classify(triples)
    thresholds = run.score(triples) - margins
    for relation in range(run.graph.num_relations):
        mine = thresholds[triples[:, 1] == relation]
        assert np.allclose(mine, mine[:1], atol=1e-5)  # one threshold per relation
    assert (labels == (margins >= 0)).all()
    assert 0 <= run.classification("test").accuracy <= 1


@pytest.mark.parametrize("suffix", [".npy", ".txt", ".parquet"])
def test_exported_relations_have_a_name_each(run, tmp_path, suffix):
    names = run.graph.relations
    expected = [*names, *(f"{name}_inverse" for name in names)]
    run.export(tmp_path / f"r{suffix}", "relation")
    if suffix == ".npy":
        vectors = np.load(tmp_path / "r.npy")
        found = (tmp_path / "r.names.txt").read_text(encoding="utf-8").splitlines()
    elif suffix == ".txt":
        lines = (tmp_path / "r.txt").read_text(encoding="utf-8").splitlines()[1:]
        found = [line.split()[0] for line in lines]
        vectors = np.array([[float(v) for v in line.split()[1:]] for line in lines])
    else:
        table = parquet.read_table(tmp_path / "r.parquet")
        found, vectors = table["name"].to_pylist(), np.array(table["vector"].to_pylist())
    assert found == expected
    assert np.allclose(vectors, run.embeddings("relation"))
    run.export(tmp_path / f"e{suffix}")  # entities are as ever


def test_another_run_starts_from_both_halves(run):
    config = ns.TrainConfig(
        dim=8, scoring="complex", reciprocal=True, init_from=str(run.folder.path), device="cpu"
    )
    trainer = ns.training.Trainer(ring(), config, None, ns.Progress("none"))
    assert torch.equal(trainer.model.relation, run.model.relation)
    assert trainer.model.reciprocal
    with pytest.raises(UserError, match="reciprocal True, this run has reciprocal False"):
        train(ring(), scoring="complex", init_from=str(run.folder.path))


def test_pykeen_has_no_model_with_two_rows_per_relation(run):
    pytest.importorskip("pykeen")
    with pytest.raises(UserError, match="reciprocal"):
        run.to_pykeen()
