"""A slow, obvious observer: it sees what the tracer sees, and counts with loops and sets."""

import math

import torch

from nscaching.models import Side
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.training import Progress, TrainConfig, Trainer
from nscaching.training.tracing import tracer as tracer_module
from nscaching.training.tracing.tracer import Tracer


class SlowTwin:
    """Counts one negative at a time, straight from the definitions."""

    def __init__(self, trainer, window):
        self.trainer, self.window = trainer, window
        graph = trainer.graph
        self.train = {tuple(triple) for triple in graph.train.tolist()}
        held_out = [*graph.valid.tolist(), *graph.test.tolist()]
        self.held_out = {tuple(triple) for triple in held_out} - self.train
        self.past = []  # an epoch each: triple -> its negatives
        self.begin()

    def begin(self):
        self.now, self.norms, self.steps = {}, [], 0
        self.counts = dict.fromkeys(("drawn", "nonzero", "repeated", "known", "false"), 0)

    def observe(self, candidates):
        """See a step with one question per triple; the parameters have not moved yet."""
        trainer, size = self.trainer, self.trainer.config.batch_size
        index = trainer.executor.order[self.steps * size : (self.steps + 1) * size].tolist()
        for place, number in enumerate(index):
            triple = tuple(trainer.graph.train[number].tolist())
            mine = []
            for entity in candidates.negatives[place].tolist():
                if entity >= 0:
                    mine.append((entity, bool(candidates.replaces_head[place])))
            for entity, replaces_head in mine:
                self.see(number, triple, entity, replaces_head)
            self.now[number] = set(mine)
        if self.steps % tracer_module.NORM_EVERY == 0:
            self.norms.append(self.dense_norm(index, candidates))
        self.steps += 1

    def see(self, number, triple, entity, replaces_head):
        head, relation, tail = triple
        false = (entity, relation, tail) if replaces_head else (head, relation, entity)
        self.counts["drawn"] += 1
        self.counts["known"] += false in self.train
        self.counts["false"] += false in self.held_out
        self.counts["nonzero"] += self.has_loss(triple, false)
        recent = self.past[-self.window :]
        self.counts["repeated"] += any((entity, replaces_head) in e.get(number, ()) for e in recent)

    def score(self, triple):
        ids = [torch.tensor([each]) for each in triple]
        return float(self.trainer.model.score(*ids))

    def has_loss(self, positive, negative):
        margin = getattr(self.trainer.loss, "margin", None)
        if margin is None:
            return math.log1p(math.exp(self.score(negative))) > 0.01
        return margin - self.score(positive) + self.score(negative) > 0

    def dense_norm(self, index, candidates):
        """Return the norm of the gradient by the whole tables."""
        model, sampler = self.trainer.model, self.trainer.sampler
        tables = [table.clone().requires_grad_() for table in (model.entity, model.relation)]
        h, r, t = torch.from_numpy(self.trainer.graph.train[index]).long().unbind(1)
        ids, where = candidates.ids, candidates.replaces_head.unsqueeze(1)
        there = ids.clamp_min(0)
        heads = torch.where(where, there, h.unsqueeze(1))
        tails = torch.where(where, t.unsqueeze(1), there)
        relations = r.unsqueeze(1).expand_as(ids)
        scores = model.scoring.score(tables[0][heads], tables[1][relations], tables[0][tails])
        scores = scores.masked_fill(ids < 0, -torch.inf)
        weights = sampler.weigh(candidates, scores.detach())
        slopes = self.trainer.loss(scores.detach(), weights)[1]
        gradients = torch.autograd.grad(scores, tables, slopes)
        return math.sqrt(sum(float(g.square().sum()) for g in gradients))

    def end_epoch(self):
        """Return the line of the epoch, and begin the next."""
        drawn = self.counts["drawn"]
        line = {
            "negatives": drawn,
            "nonzero_loss": self.counts["nonzero"] / drawn,
            "repeated": self.counts["repeated"] / drawn,
            "gradient_norm": sum(self.norms) / len(self.norms),
            "known_sampled": self.counts["known"] / drawn,
            "false_sampled": self.counts["false"] / drawn,
            **self.cached(),
        }
        self.past.append(self.now)
        self.begin()
        return line

    def cached(self):
        sampler = self.trainer.sampler
        if not isinstance(sampler, NSCachingSampler):
            return {"known_cached": None, "false_cached": None}
        entries = []
        for side, cache in sampler.caches.items():
            for row, ids in enumerate(cache.ids.tolist()):
                anchor, relation = int(sampler.anchor[side][row]), int(sampler.relation[side][row])
                for entity in ids:
                    if entity >= 0:
                        head = side is Side.HEAD
                        ends = (entity, relation, anchor) if head else (anchor, relation, entity)
                        entries.append(ends)
        return {
            "known_cached": sum(entry in self.train for entry in entries) / len(entries),
            "false_cached": sum(entry in self.held_out for entry in entries) / len(entries),
        }


def traced_trainer(graph, **options):
    small = {"dim": 6, "batch_size": 16, "device": "cpu", "trace": True, "valid_every": 0}
    config = TrainConfig.from_mapping({"data": "test", **small, **options}, "test")
    return Trainer(graph, config, None, Progress("none"))


def watched(monkeypatch, trainer, window):
    """Let a slow twin see what the tracer sees; return it."""
    twin = SlowTwin(trainer, window)
    original = Tracer.observe

    def observe(self, drawn, *rest):
        twin.observe(drawn)
        original(self, drawn, *rest)

    monkeypatch.setattr(Tracer, "observe", observe)
    return twin
