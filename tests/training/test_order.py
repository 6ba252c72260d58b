"""The order within a step: sample, update the caches, then learn (paper, alg-cache)."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from nscaching.optim import Adam
from nscaching.sampling import BernoulliSampler
from nscaching.training import Progress, TrainConfig, Trainer
from nscaching.training.execution import Executor, GraphExecutor

from .helpers import ring


class Recording(BernoulliSampler):
    """Writes down what it is asked for, and whether the tables had moved by then."""

    def begin(self, events, model):
        self.events, self.model, self.before = events, model, model.entity.clone()
        return self

    def _seen(self, what):
        moved = not torch.equal(self.model.entity, self.before)
        self.events.append(f"{what}, moved" if moved else what)

    def sample(self, batch, generator):
        self._seen("sample")
        return super().sample(batch, generator)

    def update_jobs(self, batch, queries, generator):
        return [lambda: self._seen("update heads"), lambda: self._seen("update tails")]

    def learn(self, batch, candidates, scores, queries):
        self._seen("learn")


class Stream:
    """Stands for a CUDA stream: says what waits for what, and what runs on it."""

    def __init__(self, name, events):
        self.name, self.events = name, events

    def wait_stream(self, other):
        self.events.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def events(monkeypatch):
    found = []
    apply = Adam.apply

    def recorded(self, gradients):
        found.append("apply")
        apply(self, gradients)

    monkeypatch.setattr(Adam, "apply", recorded)
    return found


@pytest.fixture
def trainer(events):
    config = TrainConfig(dim=4, lr=0.1, batch_size=8, device="cpu", sampler="bernoulli")
    made = Trainer(ring(), config, None, Progress("none"))
    made.sampler = Recording(made.graph, config, made.device).begin(events, made.model)
    made.executor = made._make_executor()
    made.executor.begin_epoch(torch.arange(70), 0)
    return made


def test_caches_are_updated_after_sampling_and_before_the_parameters_move(trainer, events):
    trainer.executor.step()
    updates = ["update heads", "update tails"]
    assert events == ["sample", *updates, "apply", "learn, moved"]


def test_in_a_cuda_graph_parameters_move_when_all_updates_are_done(trainer, events, monkeypatch):
    graph = object.__new__(GraphExecutor)  # as on a GPU, but for the streams
    vars(graph).update(vars(trainer.executor))
    main, *graph._streams = (Stream(name, events) for name in ("main", "first", "second"))
    graph._next_batch = lambda size: Executor._batch_at(graph, 0)

    @contextlib.contextmanager
    def on(stream):
        events.append(f"on {stream.name}")
        yield

    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "stream", on)
    graph._captured_step(8)
    assert events == [
        "sample",
        *("first waits for main", "on first", "update heads"),
        *("second waits for main", "on second", "update tails"),
        *("main waits for first", "main waits for second"),
        "apply",
        "learn, moved",
    ]


def test_whole_batches_and_the_last_one_have_a_graph_each(trainer):
    replayed, executed = [], trainer.executor
    graph = object.__new__(GraphExecutor)
    vars(graph).update(vars(executed))
    graph._executed, graph._graphs, graph._start = {}, {}, torch.zeros(())
    graph._capture = lambda size: SimpleNamespace(replay=lambda: replayed.append(size))
    for epoch in range(2):
        graph.start, count = 0, len(replayed)
        while graph.start < 70:
            graph.step()
        # Whole batches are executed three times, and the last one in the first epoch.
        assert replayed[count:] == ([8] * 5 if epoch == 0 else [8] * 8 + [6])
    assert len(graph._graphs) == 2
