"""Runs whose entity table is of bfloat16."""

import numpy as np
import pytest
import torch

import nscaching as ns
from nscaching import UserError
from nscaching.kernels.registry import GPU, PLAIN, forced
from nscaching.models import SCORING, Side
from nscaching.training import Progress, TrainConfig, Trainer, memory
from nscaching.training.memory import plan_memory

from ..conftest import HAVE_GPU_FORMS, device_of, random_graph
from .helpers import SOFTMAX_STATE, bits, go_on, kept_bits, ring, train

COMPACT = {"table": "bfloat16", "optimizer": "adagrad", "lr": 0.1, "device": "cpu"}
GRAPH = random_graph(entities=40)


def trainer_of(**options):
    return Trainer(GRAPH, TrainConfig(dim=8, **{**COMPACT, **options}), None, Progress("none"))


@pytest.mark.parametrize("sampler", ["uniform", "nscaching"])
def test_a_run_resumes_to_the_same_bits(tmp_path, sampler):
    options = {**SOFTMAX_STATE, **COMPACT, "sampler": sampler, "valid_every": 2}
    train(ring(), out=tmp_path / "R", epochs=4, **options)
    longer = go_on(tmp_path / "R", epochs=6)
    whole = train(ring(), out=tmp_path / "whole", epochs=6, **options)
    assert bits(longer) == bits(whole)
    assert kept_bits(tmp_path / "R") == kept_bits(tmp_path / "whole")


def test_a_run_answers_as_when_it_is_read_back(tmp_path):
    run = ns.train(GRAPH, out=tmp_path / "R", epochs=3, dim=8, progress="none", **COMPACT)
    again = ns.load_run(tmp_path / "R", device="cpu")
    assert run.model.entity.dtype == torch.bfloat16
    assert again.model.entity.dtype == torch.float32
    assert np.array_equal(run.embeddings(), again.embeddings())
    assert run.evaluate("test").overall() == pytest.approx(again.evaluate("test").overall())
    one, two = (each.predict_tails("e3", "r1", k=3) for each in (run, again))
    assert [answer.tail for answer in one] == [answer.tail for answer in two]
    assert run.neighbours("e3", k=2)[0].entity == again.neighbours("e3", k=2)[0].entity


@pytest.mark.parametrize("name", SCORING)
def test_scores_and_queries_are_those_of_the_same_numbers_in_float64(name):
    model = trainer_of(scoring=name).model
    tables = {part: table.double() for part, table in model.state().items()}
    twin = model.with_tables(tables)
    h, r, t = (torch.arange(5) for _ in range(3))
    assert model.entity.dtype == torch.bfloat16
    torch.testing.assert_close(model.score(h, r % 4, t + 9).double(), twin.score(h, r % 4, t + 9))
    for side in Side:
        given = (side, h, r % 4)
        close = {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(
            model.score_all(*given).double(), twin.score_all(*given), **close
        )
        mine, theirs = (each.queries(h, r % 4, t + 9).query(side).vectors for each in (model, twin))
        torch.testing.assert_close(mine.double(), theirs, **close)


@pytest.mark.slow
@pytest.mark.skipif(not HAVE_GPU_FORMS, reason="triton is not installed")
@pytest.mark.parametrize(
    ("name", "sampler"), [("transd", "uniform"), ("complex", "nscaching"), ("rotate", "uniform")]
)
def test_a_step_with_the_kernels_of_a_gpu_is_that_of_plain_torch(name, sampler):
    tables = {}
    given = {"scoring": name, "sampler": sampler, "loss": "logistic", "n3": 0.1, "seed": 3}
    for form in (PLAIN, GPU):
        with forced(form):
            trainer = trainer_of(**given, device=device_of(GPU))
            trainer.sampler.prepare(trainer.model, trainer.generator)
            order = torch.arange(len(GRAPH.train), device=trainer.device)
            trainer.executor.begin_epoch(order, 0)
            trainer.executor.step()
            tables[form] = torch.cat([trainer.model.entity, trainer.optimizer.square["entity"]])
    one, two = (table.cpu().double() for table in tables.values())
    assert (one != two).double().mean() < 0.02  # sums in another order, at the edge of a rounding
    torch.testing.assert_close(one, two, rtol=0.02, atol=0.02)


def test_small_steps_are_learnt_from():
    run = ns.train(
        ring(), epochs=60, dim=8, progress="none", scoring="distmult", n3=0.01, **COMPACT
    )
    plain = ns.train(
        ring(), epochs=60, dim=8, progress="none", scoring="distmult", n3=0.01,
        **{**COMPACT, "table": "float32"},
    )  # fmt: skip
    mine, theirs = (each.evaluate("train").overall()["mrr"] for each in (run, plain))
    assert mine > theirs - 0.05


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": "adam"}, "optimizer adam; set optimizer to adagrad"),
        ({"sampler": "all", "loss": "softmax"}, "sampler all"),
        ({"sampler": "kbgan"}, "sampler kbgan"),
        ({"strata": 2}, "strata"),
        ({"trace": True}, "tracing"),
    ],
)
def test_what_does_not_go_together_is_refused(options, said):
    with pytest.raises(UserError, match=said):
        ns.train(GRAPH, epochs=1, progress="none", **{**COMPACT, **options})


def test_a_recipe_may_bring_the_optimiser(monkeypatch):
    monkeypatch.setenv("NSCACHING_RECIPE", "cached")
    run = ns.train(GRAPH, epochs=1, dim=4, progress="none", table="bfloat16", device="cpu")
    assert run.config.optimizer == "adagrad"


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_plan_has_half_of_the_tables_and_no_gradients(on_gpu, monkeypatch):
    device = torch.device("cuda" if on_gpu else "cpu")
    monkeypatch.setattr(memory, "pick_device", lambda asked: device)
    given = {"dim": 8, "scoring": "complex", "optimizer": "adagrad", "device": "cpu"}
    half, full = (
        plan_memory(GRAPH, TrainConfig(table=table, **given)).parts
        for table in ("bfloat16", "float32")
    )
    entity, relation = 4 * 40 * 16, 4 * 4 * 16
    assert full["parameters"] - half["parameters"] == entity // 2
    assert half["optimiser"] == entity // 2 + relation
    assert full["optimiser"] == entity + relation
    assert half["gradients"] == on_gpu * relation
    assert full["gradients"] == on_gpu * (entity + relation)
    assert half["best model"] == half["parameters"]
    trainer = trainer_of(scoring="complex")
    assert sum(table.nbytes for table in trainer.model.parameters()) == half["parameters"]
