"""The peer of the benchmark computes what the library computes, where nothing is random."""

import importlib.util
from pathlib import Path

import pytest
import torch

from nscaching.losses import Logistic
from nscaching.models import EmbeddingModel, Side, SimplE
from nscaching.optim import Adam
from nscaching.sampling import Batch, Candidates, triple_columns
from nscaching.sampling.softmax import log_weights
from nscaching.training.step import TrainingStep
from tests.conftest import graph_of, random_graph, seeded
from tests.sampling.helpers import sampler_of

DIM, LR, L2, BATCH = 6, 0.02, 0.3, 30


def load_eager():
    """Import the benchmark's file, which is in no package."""
    file = Path(__file__).parents[2] / "benchmarks" / "eager.py"
    spec = importlib.util.spec_from_file_location("eager_nscaching", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.EagerNSCaching


EagerNSCaching = load_eager()


@pytest.fixture(autouse=True)
def global_generator():
    """Give back torch's own generator as it was: the peer seeds it."""
    with torch.random.fork_rng(devices=[]):
        yield


def eager_of(graph, **options):
    settings = {"cache_size": 4, "candidates": 6, "alpha3": 2.0}
    peer = EagerNSCaching(graph, dim=DIM, lr=LR, l2=L2, batch_size=BATCH, **{**settings, **options})
    with torch.no_grad():  # far from zero and from each other
        for table in (peer.entity, peer.relation):
            table.normal_(generator=seeded(1))
    return peer


def model_of(peer):
    """Return the library's model with a copy of the same parameters."""
    tables = (table.detach().clone() for table in (peer.entity, peer.relation))
    return EmbeddingModel(SimplE(DIM), *tables)


def test_scores_are_equal():
    graph = random_graph()
    peer = eager_of(graph)
    model = model_of(peer)
    h, r, t = peer.triples.T
    with torch.no_grad():
        torch.testing.assert_close(peer.score(h, r, t), model.score(h, r, t))
        ids = torch.randint(graph.num_entities, (len(h), 7), generator=seeded(2))
        heads = peer.score(ids, r[:, None], t[:, None])
        tails = peer.score(h[:, None], r[:, None], ids)
    found = {Side.HEAD: (heads, t), Side.TAIL: (tails, h)}
    for side, (scores, anchor) in found.items():
        torch.testing.assert_close(scores, model.score_candidates(side, anchor, r, ids))


@pytest.mark.parametrize("alpha3", [0.0, 1.0, 8.0])
@pytest.mark.parametrize("width", [2, 7, 20])
def test_weights_are_equal(width, alpha3):
    peer = eager_of(random_graph(), alpha3=alpha3)
    scores = 3 * torch.randn(12, width, generator=seeded(3))
    scores[0] = 1.5  # both percentiles agree
    scores[1, 1:] = -2.0
    everything = torch.ones_like(scores, dtype=torch.bool)
    expected = torch.softmax(log_weights(scores, everything, alpha3, "quantile"), dim=1)
    torch.testing.assert_close(peer.weights(scores), expected)


def test_steps_are_equal():
    """One entity a row, and sides that the relation decides, leave nothing to chance."""
    graph = random_graph()
    peer = eager_of(graph, cache_size=1)
    peer.head_probability = torch.tensor([0.0, 1.0, 0.0, 1.0])
    model = model_of(peer)
    before = model.entity.clone()
    sampler = sampler_of(graph, "bernoulli")
    adam = Adam(model.state(), LR, L2 * BATCH / len(graph.train))
    step = TrainingStep(model, sampler, Logistic(), adam, seeded(0))
    columns = triple_columns(graph, torch.device("cpu"))
    for index in torch.randperm(len(graph.train), generator=seeded(4)).split(BATCH):
        batch = Batch.of(columns, index)
        heads, tails = peer.head_cache[batch.head_rows], peer.tail_cache[batch.tail_rows]
        replaces_head = batch.relations % 2 == 1
        entities = torch.where(replaces_head.unsqueeze(1), heads, tails)
        targets = torch.where(replaces_head, batch.heads, batch.tails).unsqueeze(1)
        ids = torch.cat([targets, entities], dim=1)
        drawn = Candidates(replaces_head, ids, torch.ones(len(index), 1))
        sampler.sample = lambda *_, drawn=drawn: drawn
        loss = step(batch)
        assert peer.step(index) == pytest.approx(float(loss), rel=1e-5)
        # Adam divides by the gradient's size: what is left of it decides the last digits.
        torch.testing.assert_close(peer.entity.detach(), model.entity, rtol=0, atol=LR / 100)
        torch.testing.assert_close(peer.relation.detach(), model.relation, rtol=0, atol=LR / 100)
    assert ((model.entity - before).abs() > LR).float().mean() > 0.5  # it went somewhere


def update_all(peer, monkeypatch):
    """Update the rows of all triples once; return each side's scores, candidates and rows."""
    drawn = []
    randint = torch.randint

    def remember(*arguments):
        drawn.append(randint(*arguments))
        return drawn[-1]

    before = peer.head_cache.clone(), peer.tail_cache.clone()
    monkeypatch.setattr(torch, "randint", remember)
    h, r, t = peer.triples.T
    peer.update(h, r, t, torch.arange(len(h)))
    model = model_of(peer)
    found = []
    for side, old, fresh, rows, anchor, cache in (
        (Side.HEAD, before[0], drawn[0], peer.head_row, t, peer.head_cache),
        (Side.TAIL, before[1], drawn[1], peer.tail_row, h, peer.tail_cache),
    ):
        candidates = torch.cat([old[rows], fresh], dim=1)
        scores = model.score_candidates(side, anchor, r, candidates)
        kept = model.score_candidates(side, anchor, r, cache[rows])
        found.append((candidates, cache[rows], scores, kept))
    return found


def chain(entities=80):
    """Make a graph where no two triples share a pair, so that each row has one update."""
    return graph_of([(i, 0, i + 1) for i in range(entities - 1)])


@pytest.mark.parametrize("alpha3", [0.0, 2.0, 50.0])
def test_update_keeps_candidates_only(alpha3, monkeypatch):
    peer = eager_of(chain(), alpha3=alpha3)
    for candidates, kept, *_ in update_all(peer, monkeypatch):
        assert (kept.unsqueeze(2) == candidates.unsqueeze(1)).any(2).all()


def test_update_at_a_high_temperature_keeps_the_highest_scores(monkeypatch):
    """Four of twenty are above the 80th percentile: they weigh the same, the others nothing."""
    peer = eager_of(chain(), candidates=16, alpha3=1e4)
    for _, _, scores, kept in update_all(peer, monkeypatch):
        highest = scores.topk(4, dim=1).values[:, -1:]
        assert (kept >= highest - 1e-5).float().mean() > 0.98


def test_update_without_temperature_does_not_look_at_the_scores(monkeypatch):
    peer = eager_of(chain(), candidates=16, alpha3=0.0)
    for _, _, scores, kept in update_all(peer, monkeypatch):
        highest = scores.topk(4, dim=1).values[:, -1:]
        assert 0.1 < (kept >= highest - 1e-5).float().mean() < 0.3
