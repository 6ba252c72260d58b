"""A scoring function and a loss of one's own, written here in plain torch, train on the fast path.

Neither has a kernel, and no other file knows of them.
"""

from dataclasses import dataclass

import pytest
import torch

from nscaching.kernels.registry import CPU, PLAIN, forced
from nscaching.losses import LOSSES
from nscaching.models import SCORING, ScoringFunction
from nscaching.models.base import Semantic
from nscaching.models.match import NO_VIEW
from nscaching.models.matches import Distance
from nscaching.models.queries import BatchQueries, BilinearQueries
from nscaching.training import Progress, TrainConfig, Trainer

from ..conftest import device_of, kernel_forms, random_model
from .helpers import ring


class Crossed(Semantic):
    """Two parts per entity, one per relation: ``<[h2 r, -h1 r], t>``, which is bilinear."""

    name = "crossed"
    entity_parts = 2

    def tail_query(self, h, r):
        first, second = h.chunk(2, dim=-1)
        return torch.cat([second * r, -first * r], dim=-1)

    def head_query(self, r, t):
        first, second = t.chunk(2, dim=-1)
        return torch.cat([-second * r, first * r], dim=-1)


class Affine(Semantic):
    """``<h + tanh(r) h, t>``, which is not bilinear: autograd differentiates its queries."""

    name = "affine"

    def tail_query(self, h, r):
        return h + r.tanh() * h

    def head_query(self, r, t):
        return t + r.tanh() * t


class Moved(ScoringFunction):
    """``-||h + r - t||_2`` of rows as they are: a match with another view."""

    name = "moved"
    usual_loss = "margin"

    def build_match(self):
        return Distance(2, NO_VIEW)

    def tail_query(self, h, r):
        return h + r

    def head_query(self, r, t):
        return t - r


TOYS = {toy.name: toy for toy in (Crossed, Affine, Moved)}


@dataclass(frozen=True)
class SquaredHinge:
    """``[margin - f(pos) + f(neg)]_+ ** 2``."""

    margin: float

    def __call__(self, scores, weights):
        gap = (self.margin - scores[:, :1] + scores[:, 1:]).clamp_min(0)
        d_negative = 2 * weights * gap
        d_scores = torch.cat([-d_negative.sum(1, keepdim=True), d_negative], dim=1)
        return (weights * gap**2).sum(), d_scores


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    for name, toy in TOYS.items():
        monkeypatch.setitem(SCORING, name, toy)
    monkeypatch.setitem(LOSSES, "squared-hinge", lambda options: SquaredHinge(options.margin))


def trained(form, device, **options):
    """Train a few epochs; return the loss of each and the model."""
    small = {"dim": 6, "epochs": 6, "batch_size": 10, "valid_every": 0, "lr": 0.05, "margin": 1.0}
    sizes = {"sampler": "bernoulli", "cache_size": 4, "candidates": 4, "int8": False}
    config = {**small, **sizes, "device": device, **options}
    with forced(form):
        graph = ring(entities=12, relations=2, held_out=2)
        trainer = Trainer(graph, TrainConfig.from_mapping(config, "test"), None, Progress("none"))
        losses = []
        trainer.after_epoch = lambda epoch: losses.append(trainer.executor.loss())
        trainer.run(resume=False)
    return losses, trainer.model.to(torch.device("cpu"))


#: Triton's interpreter takes a tenth of a second to update a row of a cache.
slow = pytest.mark.slow


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"scoring": "crossed", "loss": "squared-hinge", "negatives": 2}, marks=slow),
        {"scoring": "affine", "loss": "squared-hinge"},
        pytest.param({"scoring": "moved", "loss": "squared-hinge", "reciprocal": True}, marks=slow),
        pytest.param(
            {"scoring": "transe", "loss": "squared-hinge", "optimizer": "adagrad", "lr": 0.2},
            marks=slow,
        ),
        pytest.param(
            {"scoring": "affine", "loss": "softmax", "sampler": "nscaching", "lr": 0.1}, marks=slow
        ),
        pytest.param(
            {"scoring": "crossed", "loss": "squared-hinge", "sampler": "nscaching"}, marks=slow
        ),
    ],
    ids=lambda options: "-".join(str(value) for value in options.values()),
)
def test_toys_learn_the_same_with_the_kernels_of_every_form(options):
    defined = {}  # on each device, whose generator draws numbers of its own
    for form in kernel_forms():
        device = device_of(form)
        if device not in defined:
            defined[device] = trained(PLAIN, device, **options)
        expected, model = defined[device]
        assert expected[-1] < 0.8 * expected[0]
        losses, other = trained(form, device, **options)
        assert losses == pytest.approx(expected, rel=1e-3)
        for table, plain in zip(other.parameters(), model.parameters(), strict=True):
            # Adam divides by the gradient's size: where that is nothing, rounding decides.
            close = torch.isclose(table, plain, atol=1e-3, rtol=1e-2)
            assert close.float().mean() > 0.98


def test_a_bilinear_toy_gets_the_fast_queries_without_a_line_of_its_own():
    ids = torch.zeros(1, dtype=torch.int64)
    for form in (PLAIN, CPU):
        with forced(form):
            kinds = {name: type(random_model(name).queries(ids, ids, ids)) for name in TOYS}
        fast = BatchQueries if form == PLAIN else BilinearQueries
        assert kinds == {"crossed": fast, "affine": BatchQueries, "moved": BatchQueries}


def test_a_toy_is_not_known_without_its_registry_entry(monkeypatch):
    monkeypatch.delitem(LOSSES, "squared-hinge")
    with pytest.raises(Exception, match="squared-hinge"):
        trained(CPU, "cpu", scoring="crossed", loss="squared-hinge")
