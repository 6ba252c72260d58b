"""The counters against a slow count; what they must show on graphs where it is known."""

import numpy as np
import pytest
import torch

from nscaching.training.tracing import counters, repeats
from nscaching.training.tracing.repeats import RepeatWindow

from ...conftest import on_both_paths, random_graph
from .helpers import traced_trainer, watched

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


@on_both_paths
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
        last[sampler] = [line for line in trainer.tracer.lines if line["event"] == "epoch"][-1]
    for counter in ("nonzero_loss", "repeated", "gradient_norm"):
        assert last["nscaching"][counter] > 1.5 * last["bernoulli"][counter], counter


def test_only_a_fixed_part_of_many_triples_is_followed(monkeypatch):
    monkeypatch.setattr(repeats, "MOST_COMPARISONS", 60)
    first, again, other = (RepeatWindow(100, 1, 2, seed, torch.device("cpu")) for seed in (0, 0, 1))
    assert first.followed == 30
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
