"""Short runs over strata, in this process or in several, and what they end with."""

import math
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing

from nscaching.distributed.placement import split
from nscaching.graph import KnowledgeGraph, load_graph
from nscaching.training import Progress, TrainConfig, Trainer

STRATA, STEPS = 4, 30
#: One of each: both losses of the paper, softmax over cached entities and a pool, uniform
#: candidates, and all entities; Adam, lazy Adam and Adagrad; a query that is no kernel's; gradients
#: that are added up by entity; queries with a context.
KINDS = {
    "transe": {"scoring": "transe"},
    "complex": {"scoring": "complex", "l2": 0.01},
    "alpha2": {"scoring": "distmult", "alpha2": 1.0, "reciprocal": True, "optimizer": "lazy-adam"},
    "pool": {"scoring": "complex", "sampler": "self-adversarial", "pool": 32, "dropout": 0.1},
    "transd": {"scoring": "transd", "sampler": "bernoulli", "negatives": 3, "optimizer": "adagrad"},
    "cached": {
        "scoring": "complex",
        "loss": "softmax",
        "reciprocal": True,
        "optimizer": "adagrad",
        "n3": 0.01,
        "relation_prediction": 0.3,
        "pool": 64,
        "dropout": 0.1,
        "known_positives": "allow",
    },
    "summed": {"scoring": "complex", "loss": "softmax"},
    "context": {"scoring": "transh", "loss": "softmax", "sampler": "uniform", "negatives": 16},
    "uniform": {
        "scoring": "transe",
        "loss": "softmax",
        "sampler": "uniform",
        "negatives": 16,
        "label_smoothing": 0.1,
    },
    "all": {
        "scoring": "complex",
        "loss": "softmax",
        "sampler": "all",
        "optimizer": "adagrad",
        "label_smoothing": 0.1,
        "n3": 0.01,
        "relation_prediction": 0.3,
    },
}


def config(kind, strata=STRATA, **options):
    small = {"dim": 8, "cache_size": 10, "candidates": 10, "batch_size": 96, "device": "cpu"}
    return TrainConfig(**{**small, "strata": strata, "epochs": 1, **KINDS[kind], **options})


def small_graph(entities=23, relations=3, triples=150, seed=0):
    limits = (entities, relations, entities)
    facts = np.random.default_rng(seed).integers(limits, size=(triples, 3))
    names = [f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)]
    tenth = triples // 10
    return KnowledgeGraph(*names, facts[2 * tenth :], facts[:tenth], facts[tenth : 2 * tenth])


def take_steps(graph, kind, steps=STEPS, **options):
    """Return a trainer after some steps, an epoch at most."""
    trainer = Trainer(graph, config(kind, **options), None, Progress("none"))
    trainer.sampler.prepare(trainer.model, trainer.generator)
    trainer.order = trainer.sampler.begin_epoch(0, trainer.generator)
    trainer.executor.begin_epoch(trainer.order, 0)
    for _ in range(min(steps, math.ceil(len(trainer.order) / trainer.batch_size))):
        trainer.executor.step()
    return trainer


def ended(trainer):
    """Return everything that a run has, per stratum, and ranks of some triples, as tensors."""
    trainer.optimizer.catch_up_all()
    parts = {
        "model": trainer.model.state(),
        "adam": trainer.optimizer.state(),
        "sampler": trainer.sampler.state(),
        "random": {"state": trainer.generator.get_state()},
    }
    shards = trainer.placement.shards
    shared, strata = split(shards, parts)
    found = {f"shared/{g}/{n}": t for g, tensors in shared.items() for n, t in tensors.items()}
    for number, part in strata.items():
        for group, tensors in part.items():
            found |= {f"{number}/{group}/{name}": t for name, t in tensors.items()}
    ranks = trainer.validation.rank(trainer.model, "valid")
    mrr = [ranks.mrr, ranks.without_loops.mrr]
    found["ranks"] = torch.tensor(mrr, dtype=torch.float64)
    found["loss"] = torch.tensor(trainer.placement.total(trainer.executor.loss()))
    return {name: tensor.clone() for name, tensor in found.items()}


def in_processes(count, work, *arguments, groups=None):
    """Run ``work(*arguments)`` in processes of gloo groups; return what each returned, by group.

    ``groups`` are sizes, one after the other: starting processes takes longer than the work.
    """
    groups = groups or (count,)
    with tempfile.TemporaryDirectory() as folder:
        given = (groups, folder, work, arguments)
        torch.multiprocessing.spawn(_one, given, nprocs=count)
        return {
            size: [torch.load(Path(folder) / f"{size}-{rank}.pt") for rank in range(size)]
            for size in groups
        }


def _one(rank, groups, folder, work, arguments):
    os.environ["NSCACHING_WARM_UP"] = "0"
    torch.set_num_threads(1)
    for size in groups:
        if rank < size:
            store = torch.distributed.FileStore(f"{folder}/store-{size}", size)
            torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
            torch.save(work(*arguments), Path(folder) / f"{size}-{rank}.pt")
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()


def all_kinds(kinds):
    """Return what short runs of some kinds on ``world`` end with, and what they sent."""
    graph, found = load_graph("world"), {}
    smaller = small_graph(60, triples=31)
    for kind in kinds:
        trainer = take_steps(graph, kind)
        sent = trainer.placement.shards.exchange.bytes_sent
        found[kind] = ended(trainer), sent
        # The last batch of an epoch may be smaller than the group.
        short = take_steps(smaller, kind, batch_size=len(smaller.train) // 2)
        found[kind][0].update({f"short/{name}": each for name, each in ended(short).items()})
    return found
