"""The counters against a slow count; what they must show on graphs where it is known."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nscaching.optim import RowGradients
from nscaching.sampling import triple_columns
from nscaching.training import TrainConfig
from nscaching.training.tracing import Tracer, counters
from nscaching.training.tracing.counters import RepeatWindow

from ...conftest import random_graph, seeded
from .helpers import traced_trainer, watched

CPU = torch.device("cpu")

CASES = {
    "bernoulli, margin": {"sampler": "bernoulli", "scoring": "transe", "margin": 0.3},
    "nscaching, logistic": {"sampler": "nscaching", "scoring": "simple", "lr": 0.3},
    "nscaching, all temperatures, known positives": {
        "sampler": "nscaching",
        "scoring": "transd",
        "known_positives": "allow",
        "alpha1": 1.0,
        "alpha2": 1.0,
        "margin": 0.5,
    },
    "three negatives, fused margin": {"negatives": 3, "scoring": "distmult", "loss": "margin"},
    "self-adversarial": {"sampler": "self-adversarial", "scoring": "transe", "negatives": 2},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_every_counter_equals_the_slow_count(monkeypatch, options):
    monkeypatch.setattr(counters, "_BUFFER", 40)  # counted several times an epoch
    graph = random_graph(entities=14, relations=2, train=70, held_out=30)
    small = {"cache_size": 4, "candidates": 4, "trace_window": 2, "lr": 0.1}
    trainer = traced_trainer(graph, **{**small, **options})
    twin = watched(monkeypatch, trainer, window=2)
    trainer.sampler.prepare(trainer.model, trainer.generator)
    seen = []
    for epoch in range(5):
        order = trainer.sampler.begin_epoch(epoch, trainer.generator)
        trainer.executor.begin_epoch(order, 0)
        for _ in range(5):
            trainer.executor.step()
        expected = twin.end_epoch()
        line, *rows = trainer.tracer.end_epoch(epoch + 1, trainer.model, trainer.sampler)
        assert {row["event"] for row in rows} <= {"row"}
        norm = expected.pop("gradient_norm")
        assert line.pop("gradient_norm") == pytest.approx(norm, rel=1e-4)
        recall = line.pop("recall")
        assert (recall is None) == (expected["false_cached"] is None)
        assert line == {"event": "epoch", "epoch": epoch + 1, **expected}
        seen.append(line)
    assert any(line["repeated"] > 0 for line in seen)
    assert any(line["false_sampled"] > 0 for line in seen)


def test_uniform_negatives_repeat_as_often_as_chance_says(monkeypatch):
    """With n entities a uniform negative was there within w epochs with a known probability."""
    graph = random_graph(entities=40, relations=1, train=1500, held_out=0)
    trainer = traced_trainer(
        graph, sampler="uniform", known_positives="allow", trace_window=4, batch_size=500, dim=2
    )
    trainer.sampler.prepare(trainer.model, trainer.generator)
    shares = []
    for epoch in range(14):
        order = trainer.sampler.begin_epoch(epoch, trainer.generator)
        trainer.executor.begin_epoch(order, 0)
        for _ in range(3):
            trainer.executor.step()
        lines = trainer.tracer.end_epoch(epoch + 1, trainer.model, trainer.sampler)
        shares.append(lines[0]["repeated"])
    chance = 1 - (1 - 1 / 80) ** 4  # 40 entities on two sides
    spread = (chance * (1 - chance) / (10 * 1500)) ** 0.5
    assert abs(np.mean(shares[4:]) - chance) < 5 * spread
    assert shares[0] == 0


def test_a_cache_has_more_loss_repeats_and_larger_gradients_than_chance():
    """What the paper says of NSCaching against Bernoulli, on a graph that is soon learnt."""
    last = {}
    graph = random_graph(entities=60, relations=2, train=150, held_out=10)
    for sampler in ("bernoulli", "nscaching"):
        trainer = traced_trainer(
            graph,
            sampler=sampler,
            scoring="transe",
            lr=0.05,
            margin=0.5,
            dim=16,
            epochs=60,
            cache_size=5,
            candidates=10,
            alpha3=20.0,
        )
        trainer.run(resume=False)
        last[sampler] = [line for line in trainer.tracer.lines if line["event"] == "epoch"][-10:]
    for counter in ("nonzero_loss", "repeated", "gradient_norm"):
        mean = {name: np.mean([line[counter] for line in lines]) for name, lines in last.items()}
        assert mean["nscaching"] > 1.5 * mean["bernoulli"], counter


@pytest.mark.parametrize("sampler", ["all", "uniform"])
def test_the_norm_of_a_gradient_does_not_depend_on_the_optimiser(sampler):
    found = []
    for optimizer in ("adam", "adagrad"):
        options = {"sampler": sampler, "loss": "softmax", "optimizer": optimizer}
        trainer = traced_trainer(random_graph(), scoring="complex", **options)
        trainer.executor.begin_epoch(trainer.sampler.begin_epoch(0, trainer.generator), 0)
        trainer.executor.step()
        found.append(trainer.tracer.norms.sums.tolist())
    assert found[0] == pytest.approx(found[1])


def test_only_a_fixed_part_of_many_triples_is_followed(monkeypatch):
    monkeypatch.setattr(counters, "MOST_COMPARISONS", 60)
    first, again, other = (RepeatWindow(100, 1, 2, seed, torch.device("cpu")) for seed in (0, 0, 1))
    assert (first.place >= 0).sum() == 30
    assert torch.equal(first.place, again.place)
    assert not torch.equal(first.place, other.place)
    triples, keys = torch.arange(100), torch.arange(100).unsqueeze(1)
    exists = torch.ones(100, 1, dtype=torch.bool)
    assert first.count(triples, keys, exists, 0).tolist() == [30, 0]
    first.end_epoch(1)
    assert first.count(triples, keys, exists, 0).tolist() == [30, 30]


def test_tracing_changes_no_bit_of_what_is_learnt():
    tables = []
    for trace in (False, True):
        graph = random_graph(entities=20, train=80)
        trainer = traced_trainer(graph, trace=trace, epochs=3, alpha1=0.5, alpha2=0.5)
        trainer.run(resume=False)
        tables.append(trainer.model.entity)
    assert torch.equal(*tables)


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("loss", ["margin", "logistic"])
@pytest.mark.parametrize("k", [3, 40], ids=["few negatives", "many negatives"])
def test_candidates_with_the_true_entity_first_are_counted(monkeypatch, sides, loss, k):
    """The call of a step: ids (q, 1 + k), -1 is padding; both sides of a triple, heads first."""
    monkeypatch.setattr(counters, "_BUFFER", 5 * k * 8)
    graph = random_graph(entities=30, relations=2, train=20, held_out=60)
    config = TrainConfig(trace=True, batch_size=8, trace_window=2, loss=loss, margin=0.5)
    tracer = Tracer(graph, config, config.build_loss(loss), triple_columns(graph, CPU))
    train = {tuple(triple) for triple in graph.train.tolist()}
    held_out = {tuple(t) for t in np.concatenate([graph.valid, graph.test]).tolist()} - train
    generator, past = seeded(0), []
    nothing = {"entity": [RowGradients(None, torch.zeros(1, 1))]}
    chosen = range(k) if k <= 16 else [place * k // 16 for place in range(16)]
    for epoch in range(1, 4):
        order = torch.randperm(20, generator=generator)
        tracer.begin_epoch(order, 0)
        expected, now = dict.fromkeys(("drawn", "loss", "repeated", "known", "false"), 0), set()
        for start in range(0, 20, 8):
            index = order[start : start + 8].repeat(sides)
            ids = torch.randint(-1, 30, (len(index), 1 + k), generator=generator)
            scores = torch.randn(len(index), 1 + k, generator=generator)
            heads = torch.rand(len(index), generator=generator) < 0.5
            if sides == 2:
                heads = torch.arange(len(index)) < len(index) // 2
            ids[:, 0] = torch.from_numpy(
                np.where(heads, graph.train[index, 0], graph.train[index, 2])
            )
            tracer.observe(
                SimpleNamespace(negatives=ids[:, 1:], replaces_head=heads), scores, nothing
            )
            tracer.after_step()
            for row, triple in enumerate(index.tolist()):
                h, r, t = graph.train[triple].tolist()
                for column in chosen:
                    entity, score = int(ids[row, 1 + column]), float(scores[row, 1 + column])
                    if entity < 0:
                        continue
                    fact = (entity, r, t) if heads[row] else (h, r, entity)
                    key = triple, bool(heads[row]), entity
                    gap = 0.5 - float(scores[row, 0]) + score
                    teaches = gap > 0 if loss == "margin" else np.log1p(np.exp(score)) > 0.01
                    expected["drawn"] += 1
                    expected["loss"] += teaches
                    expected["repeated"] += any(key in each for each in past[-2:])
                    expected["known"] += fact in train
                    expected["false"] += fact in held_out
                    now.add(key)
        past.append(now)
        line = tracer.end_epoch(epoch, None, object())[0]
        drawn = expected["drawn"]
        assert line["negatives"] == drawn
        assert line["nonzero_loss"] == pytest.approx(expected["loss"] / drawn)
        assert line["repeated"] == pytest.approx(expected["repeated"] / drawn)
        assert line["known_sampled"] == pytest.approx(expected["known"] / drawn)
        assert line["false_sampled"] == pytest.approx(expected["false"] / drawn)
    assert expected["repeated"] > 0


def test_with_every_entity_as_a_candidate_nothing_was_drawn():
    graph = random_graph(entities=12, train=20)
    config = TrainConfig(trace=True, batch_size=20)
    tracer = Tracer(graph, config, config.build_loss("logistic"), triple_columns(graph, CPU))
    tracer.begin_epoch(torch.arange(20), 0)
    ids = torch.zeros(40, 1, dtype=torch.int64)
    table = torch.full((12, 3), 2.0)
    candidates = SimpleNamespace(negatives=ids[:, 1:], replaces_head=torch.arange(40) < 20)
    tracer.observe(candidates, torch.zeros(40, 1), {"entity": [RowGradients(None, table)]})
    tracer.after_step()
    line = tracer.end_epoch(1, None, object())[0]
    assert (line["negatives"], line["nonzero_loss"], line["repeated"]) == (0, None, None)
    assert line["gradient_norm"] == pytest.approx(12)
