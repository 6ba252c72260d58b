"""Runs that grow: new facts, entities and relations, accepted and rejected facts."""

import tracemalloc

import numpy as np
import pytest
import torch

import nscaching as ns
from nscaching import UserError
from nscaching.models import Side
from nscaching.optim import Adam
from nscaching.runs import update
from nscaching.runs.growing import _relation_weights, grown_tables
from nscaching.runs.update import (
    OnlyNewRows,
    grown_graph,
    train_new_rows,
)
from nscaching.training import Trainer, checkpoint

from ..training.helpers import bits
from .towns import towns_graph, towns_run

WAITING = ("since", "moved")
NEW = [
    ("newtown", "in country", "land1"),
    ("newtown", "near", "town1.1"),
    ("town1.1", "near", "newtown"),
    ("town1.1", "twin of", "town2.1"),
]


def test_ids_and_rows_of_what_was_known_stay(towns):
    graph = grown_graph(towns.graph, NEW, [])
    old = towns.graph
    assert graph.entities == [*old.entities, "newtown"]
    assert graph.relations == [*old.relations, "twin of"]
    assert np.array_equal(graph.train[: len(old.train)], old.train)
    assert len(graph.train) == len(old.train) + 4
    assert np.array_equal(graph.valid, old.valid)
    entity, relation = grown_tables(towns, graph)
    assert torch.equal(entity[:-1], towns.model.entity)
    assert torch.equal(relation[:-1], towns.model.relation)
    assert entity.isfinite().all()
    assert relation.isfinite().all()


def test_a_new_row_starts_among_those_like_it(towns):
    entity, _ = grown_tables(towns, grown_graph(towns.graph, NEW[:1], []))
    similarity = torch.cosine_similarity(entity[:-1], entity[-1:], dim=1)
    nearest = [towns.graph.entities[i] for i in similarity.topk(5).indices.tolist()]
    assert all(name.startswith("town1.") for name in nearest)


def test_a_fact_that_is_held_out_stays_held_out_and_a_rejected_one_goes(towns):
    graph = towns.graph
    held = tuple(
        names[i]
        for names, i in zip(
            (graph.entities, graph.relations, graph.entities), graph.test[0].tolist(), strict=True
        )
    )
    assert len(grown_graph(graph, [held], []).train) == len(graph.train)
    gone = grown_graph(graph, [], [held])
    assert len(gone.test) == len(graph.test) - 1
    assert gone.labelled["rejected"].tolist() == [[*graph.test[0].tolist(), -1]]


@pytest.mark.parametrize("epoch", [0, 1, 4])
def test_an_update_that_is_killed_is_resumed_to_the_same_bits(towns, tmp_path, monkeypatch, epoch):
    told = {"reject": towns.discover(2)[1:], "epochs": 5, "progress": "none"}
    whole = towns.update(NEW, out=tmp_path / "whole", **told)

    def killed(trainer, *given):
        if trainer.folder is not None and trainer.counters.epoch == epoch:
            raise SystemExit
        return train_epoch(trainer, *given)

    train_epoch = Trainer._train_epoch
    monkeypatch.setattr(Trainer, "_train_epoch", killed)
    with pytest.raises(SystemExit):
        towns.update(NEW, out=tmp_path / "R", **told)
    monkeypatch.undo()
    assert ns.load_run(tmp_path / "R").rejected == whole.rejected
    resumed = ns.train(out=tmp_path / "R", resume=True, progress="none")
    assert bits(resumed) == bits(whole)
    assert resumed.summary["test"] == whole.summary["test"]
    assert resumed.rejected == whole.rejected


def test_an_update_in_memory_is_that_of_a_folder(towns, tmp_path):
    one, other = (
        towns.update(NEW, out=o, epochs=2, progress="none") for o in (None, tmp_path / "R")
    )
    assert bits(one) == bits(other)


@pytest.mark.parametrize("left_out", ["by the old run", "by the new one"])
def test_adam_goes_on_with_its_state_on_another_kind_of_device(towns, monkeypatch, left_out):
    def without_waiting(state):
        return {name: part for name, part in state.items() if name.split(".")[-1] not in WAITING}

    load, state, keep = checkpoint.load, Adam.state, update._keep_optimiser
    if left_out == "by the old run":  # it was trained on a GPU, where no row waits
        parts = load(towns.folder.checkpoint)
        assert "entity.since" in parts[1]["adam"]
        parts[1]["adam"] = without_waiting(parts[1]["adam"])
        monkeypatch.setattr(checkpoint, "load", lambda file: parts)
    else:
        monkeypatch.setattr(Adam, "state", lambda self: without_waiting(state(self)))
    counts = []

    def noted(trainer, *given):
        keep(trainer, *given)
        counts.append(float(trainer.optimizer.count))

    monkeypatch.setattr(update, "_keep_optimiser", noted)
    updated = towns.update(NEW, epochs=2, progress="none")
    assert counts == [float(load(towns.folder.checkpoint)[1]["adam"]["count"])]
    assert counts[0] > 100
    assert updated.model.entity.isfinite().all()
    moved = (updated.model.entity[:-1] - towns.model.entity).norm() / towns.model.entity.norm()
    assert moved < 0.3


def test_nothing_is_held_out_of_a_graph_on_disk_that_has_nothing_held_out(tmp_path):
    graph = towns_graph(held_out=0)
    facts = "".join("\t".join(graph.named(fact)) + "\n" for fact in graph.train.tolist())
    (tmp_path / "towns.tsv").write_text(facts)
    store = ns.ingest(tmp_path / "towns.tsv", out=tmp_path / "store")
    run = ns.train(store, dim=4, epochs=1, out=tmp_path / "R", progress="none")
    new = run.update(NEW, epochs=1, out=tmp_path / "new", progress="none")
    assert len(run.graph.valid) == len(new.graph.valid) == 0
    assert len(new.graph.train) == len(run.graph.train) + len(NEW)


@pytest.fixture(scope="module")
def updated(towns, tmp_path_factory):
    found = towns.discover(4)
    before = {file: file.read_bytes() for file in towns.folder.path.rglob("*") if file.is_file()}
    new = towns.update(
        NEW,
        accept=found[:1],
        reject=found[1:3],
        out=tmp_path_factory.mktemp("updated") / "run",
        epochs=5,
        progress="none",
    )
    return found, before, new


def test_the_old_run_is_untouched_and_the_new_one_stands_alone(towns, updated):
    found, before, new = updated
    assert {f: f.read_bytes() for f in towns.folder.path.rglob("*") if f.is_file()} == before
    again = ns.load_run(new.folder.path)
    assert again.graph.fingerprint == new.graph.fingerprint
    assert again.config.init_from is None
    assert again.rejected == {found[1].triple, found[2].triple} == new.rejected
    assert again.split_of(*found[0].triple) == "train"
    assert (new.folder.path / "accepted.tsv").read_text() == "\t".join(found[0].triple) + "\n"
    assert "newtown" in again.graph.entity_ids


def test_what_was_learnt_is_kept_and_what_is_new_is_learnt(towns, updated):
    new = updated[2]
    assert new.evaluate("test").mrr > towns.evaluate("test").mrr - 0.1
    answers = new.predict_tails("newtown", "speaks", k=1)
    assert answers[0].tail == "language1"
    moved = (new.model.entity[:-1] - towns.model.entity).norm() / towns.model.entity.norm()
    assert moved < 0.5  # not trained from nothing


def test_a_rejected_fact_is_never_offered_again(updated):
    found, _, new = updated
    again = ns.load_run(new.folder.path)
    for run in (new, again):
        for fact in found[1:3]:
            answers = run.predict_tails(fact.head, fact.relation, k=500, known=True)
            assert fact.tail not in {answer.tail for answer in answers}
            heads = run.predict_heads(fact.relation, fact.tail, k=500, by="score")
            assert fact.head not in {answer.head for answer in heads}
        offered = {fact.triple for fact in run.discover(2000, per_question=None)}
        assert not offered & run.rejected


def test_a_rejection_is_remembered_and_can_be_taken_back(updated, tmp_path):
    found, _, new = updated
    next_one = new.update(accept=[found[1]], out=tmp_path / "next", epochs=1, progress="none")
    assert next_one.rejected == {found[2].triple}
    assert next_one.split_of(*found[1].triple) == "train"


def test_what_cannot_be(towns, tmp_path):
    fact = ("town1.1", "near", "town2.1")
    for options, said in (
        ({}, "nothing to update"),
        ({"accept": [fact], "reject": [fact]}, "both given as a fact and rejected"),
        ({"reject": [("nobody", "near", "town1.1")]}, "no entity 'nobody'"),
        ({"accept": [("'=x", "near", "town1.1")]}, "no entity ''=x'"),
        ({"facts": NEW, "epochs": 0}, "epochs"),
        ({"facts": ["abc"]}, "triples of names"),
        ({"reject": [fact], "out": towns.folder.path}, "is the run itself"),
        ({"facts": tmp_path / "none.tsv"}, "none.tsv"),
    ):
        with pytest.raises(UserError, match=said):
            towns.update(**{"out": tmp_path / "new", **options}, progress="none")
    assert not (tmp_path / "new").exists()


def test_decisions_come_as_data_frames(towns):
    facts = towns.discover(4)
    yes, no = facts[:2], facts[2:]
    new = towns.update(accept=yes.to_frame(), reject=no.to_frame(), epochs=1, progress="none")
    assert new.rejected == {fact.triple for fact in no}
    assert all(new.split_of(*fact.triple) == "train" for fact in yes)


def test_a_run_in_memory_grows_too(towns):
    run = ns.Run(towns.config, towns.graph, towns.model)
    new = run.update(NEW[:1], epochs=1, progress="none")
    assert new.folder is None
    assert new.graph.num_entities == run.graph.num_entities + 1


def test_new_rows_are_trained_alone_first(towns):
    graph = grown_graph(towns.graph, NEW, [])
    tables = dict(zip(("entity", "relation"), grown_tables(towns, graph), strict=True))
    settled = train_new_rows(towns, graph, towns.config, tables).model.state()
    for name, known in (("entity", towns.graph.num_entities), ("relation", 3)):
        assert torch.equal(settled[name][:known], tables[name][:known])
        assert not torch.equal(settled[name][known:], tables[name][known:])
    model = towns.model.with_tables(settled)
    before = towns.model.with_tables(tables)
    fact = torch.tensor([[*graph.train[-4].tolist()]])
    assert graph.entities[fact[0, 0]] == "newtown"

    def rank(of):
        scores = of.score_all(Side.TAIL, fact[:, 0], fact[:, 1])[0]
        return int((scores > scores[fact[0, 2]]).sum())

    assert rank(model) <= rank(before)
    assert train_new_rows(towns, towns.graph, towns.config, tables) is None


@pytest.mark.parametrize("negatives", [1, 2])
def test_only_gradients_of_new_rows_are_taken(towns, monkeypatch, negatives):
    """Adam on a CPU takes gradients as products; masked by row they must be written out."""
    options = {"recipe": "paper", "scoring": "distmult", "dim": 4, "epochs": 1, "device": "cpu"}
    run = ns.train(towns.graph, progress="none", negatives=negatives, **options)
    largest, accumulate = [], OnlyNewRows.accumulate

    def looked_at(self, gradients):
        size = len(self._moved["entity"]), 4
        before, after = torch.zeros(size), torch.zeros(size)
        for part in gradients["entity"]:
            part.add_to(before)
        before = before * self._moved["entity"].unsqueeze(1)
        accumulate(self, gradients)
        for part in gradients["entity"]:
            part.add_to(after)
        largest.append((before.abs().max().item(), (after - before).abs().max().item()))

    monkeypatch.setattr(OnlyNewRows, "accumulate", looked_at)
    run.update([("town9.9", "near", "town1.1")], epochs=1, progress="none")
    assert max(gradient for gradient, _ in largest) > 0
    assert max(off for _, off in largest) < 1e-6


def test_an_update_of_a_run_with_strata_starts_from_its_rows(tmp_path):
    """Its tables have the order of strata; those of the update have that of the graph."""
    old = towns_run(tmp_path / "old", epochs=20, strata=2)
    rejected = ("land1", "near", "town1.1")
    new = old.update(NEW, reject=[rejected], out=tmp_path / "new", epochs=1, progress="none")
    assert new.config.strata == 1
    rows, before = (torch.from_numpy(run.embeddings()) for run in (new, old))
    near = torch.cosine_similarity(rows[: len(before), None], before[None], dim=2).argmax(dim=1)
    assert (near == torch.arange(len(before))).float().mean() > 0.9
    again = ns.load_run(tmp_path / "new")
    assert bits(again) == bits(new)
    assert again.rejected == {rejected}


def test_a_new_relation_takes_of_those_that_share_its_heads_and_tails(towns):
    old = towns.graph
    graph = grown_graph(old, [*NEW, ("town1.1", "part of", "land1")], [])
    sides = [
        [{fact[side] for fact in graph.train.tolist() if fact[1] == r} for side in (0, 2)]
        for r in range(graph.num_relations)
    ]
    shared = np.array(
        [
            [
                len(new[0] & known[0]) * len(new[1] & known[1])
                for known in sides[: len(old.relations)]
            ]
            for new in sides[len(old.relations) :]
        ]
    )
    assert shared.any()
    weights = shared + 1e-3
    expected = weights / weights.sum(axis=1, keepdims=True)
    assert np.allclose(_relation_weights(old, graph), expected, atol=1e-6)


def test_known_relations_take_no_memory(towns):
    """Of 400 relations and 5,000 entities all pairs would be 4 MB, and 16 as floats."""
    facts = [(f"e{n}", f"r{n % 400}", f"e{n * 7 % 5000}") for n in range(5000)]
    old = ns.KnowledgeGraph.from_triples(facts)
    for new, most in ((("e1", "r1", "e2"), 1e5), (("e1", "r", "e2"), 2e6)):
        graph = grown_graph(old, [new], [])
        _relation_weights(old, graph)
        tracemalloc.start()
        weights = _relation_weights(old, graph)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert weights.shape == (graph.num_relations - 400, 400)
        assert peak < most
