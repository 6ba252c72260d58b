"""The study of variances: by hand, and that no fact is among the negatives."""

import errno

import numpy as np
import pytest

from nscaching.errors import CannotWrite
from nscaching.experiments.paper import definition
from nscaching.experiments.paper.making import cached_negatives, train_row, variances
from nscaching.runs.api import make_trainer
from nscaching.training import Progress

from ...conftest import random_graph


def test_the_running_variance_is_that_of_all_values():
    values = np.random.default_rng(0).normal(size=(7, 5))
    for n, found in zip((1, 3, 7), variances(list(values), (1, 3, 7)), strict=True):
        by_hand = [
            sum((x - sum(column[:n]) / n) ** 2 for x in column[:n]) / n for column in values.T
        ]
        assert found == pytest.approx(sum(by_hand) / 5)


def test_ranks_are_kept_whole_or_not_at_all(tmp_path, monkeypatch):
    def full(path, values):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "no space")

    cell, graph, ranks = definition("table-7").cells()[0], random_graph(), tmp_path / "ranks.npy"
    settings = {"dim": 4, "epochs": 1, "device": "cpu"}
    given = (cell, settings, graph, tmp_path / "R", Progress("none"))
    monkeypatch.setattr(np, "save", full)
    with pytest.raises(CannotWrite, match=r"ranks\.npy"):
        train_row(*given, ranks=ranks)
    assert not ranks.exists()
    monkeypatch.undo()
    train_row(*given, ranks=ranks)
    assert np.load(ranks).shape == (len(graph.test),)


def test_negatives_of_the_cache_are_what_it_holds_but_for_facts():
    graph = random_graph()
    trainer = make_trainer(
        graph, out=None, progress=Progress("none"), dim=4, epochs=1, cache_size=6,
        candidates=6, known_positives="allow", device="cpu",
    )  # fmt: skip
    trainer.run(resume=False)
    held = set()
    for side, rows in (("HEAD", graph.rows.head), ("TAIL", graph.rows.tail)):
        (cache,) = (c for s, c in trainer.sampler.caches.items() if s.name == side)
        for row, (anchor, relation) in enumerate(zip(rows.anchor, rows.relation, strict=True)):
            for entity in cache.ids[row].tolist():
                triple = (
                    (entity, relation, anchor) if side == "HEAD" else (anchor, relation, entity)
                )
                held.add(tuple(map(int, triple)))
    facts = {tuple(t) for s in ("train", "valid", "test") for t in graph.split(s).tolist()}
    found = [tuple(t) for t in cached_negatives(graph, trainer.sampler).tolist()]
    assert len(found) == len(set(found))
    assert set(found) == {t for t in held if t[0] >= 0 and t[2] >= 0} - facts
