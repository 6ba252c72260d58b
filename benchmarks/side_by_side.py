"""Ours, a plain eager implementation, and PyKEEN, timed one after the other in one process.

    pip install pykeen
    NSCACHING_DATA=... python benchmarks/side_by_side.py --out benchmarks/results/cpu.json

WN18RR, SimplE. Ours and the eager one do NSCaching; PyKEEN does Bernoulli sampling with one
negative, which has no cache. The evaluation is the filtered ranking of the test split with the same
parameters in ours and in PyKEEN, and the ranks are compared one by one; the parameters are small
whole numbers, so that no rounding comes between. It uses DistMult with rows as wide as SimplE's,
because PyKEEN 1.11.1 scores SimplE as <h1, r1, t1> + <h2, r2, t2>.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import nscaching as ns  # before torch: it sets up threads

# isort: split
import numpy as np
import torch

from eager import EagerNSCaching
from nscaching.benchmarking import describe_machine, time_run
from nscaching.evaluation import rank_triples
from nscaching.scoring import SCORING, EmbeddingModel, Side


def time_eager(graph, config, steps):
    eager = EagerNSCaching(
        graph,
        dim=config.dim,
        cache_size=config.cache_size,
        candidates=config.candidates,
        alpha3=config.alpha3,
        lr=config.lr,
        l2=config.l2,
        batch_size=config.batch_size,
    )
    order = torch.randperm(len(graph.train))
    batches = order.split(config.batch_size)
    for batch in batches[:2]:
        eager.step(batch)
    started = time.perf_counter()
    for batch in batches[2 : 2 + steps]:
        eager.step(batch)
    return (time.perf_counter() - started) / steps


def pykeen_model(graph, kind, dim):
    from pykeen.triples import CoreTriplesFactory

    training = CoreTriplesFactory.create(
        torch.from_numpy(graph.train).long(), graph.num_entities, graph.num_relations
    )
    return kind(triples_factory=training, embedding_dim=dim, random_seed=0), training


def time_pykeen_training(graph, config):
    """Return seconds an epoch: four epochs less one, so that the start does not count."""
    from pykeen.models import SimplE
    from pykeen.training import SLCWATrainingLoop

    def train(epochs):
        model, training = pykeen_model(graph, SimplE, config.dim)
        loop = SLCWATrainingLoop(
            model=model,
            triples_factory=training,
            optimizer=torch.optim.Adam(model.parameters(), lr=config.lr),
            negative_sampler="bernoulli",
            negative_sampler_kwargs={"num_negs_per_pos": 1},
        )
        started = time.perf_counter()
        loop.train(training, num_epochs=epochs, batch_size=config.batch_size, use_tqdm=False)
        return time.perf_counter() - started

    train(1)
    one = train(1)
    return (train(4) - one) / 3


def time_pykeen_evaluation(graph, ours):
    """Rank with PyKEEN's DistMult; return seconds and its realistic ranks by side."""
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import DistMult

    model, _ = pykeen_model(graph, DistMult, ours.entity.shape[1])
    with torch.no_grad():
        model.entity_representations[0]._embeddings.weight.copy_(ours.entity)
        model.relation_representations[0]._embeddings.weight.copy_(ours.relation)
    ranks = {"head": [], "tail": []}

    class Keeping(RankBasedEvaluator):
        def process_scores_(
            self, hrt_batch, target, scores, true_scores=None, dense_positive_mask=None
        ):
            better = (scores > true_scores).sum(1)
            equal = (scores == true_scores).sum(1)  # the true one itself is counted
            ranks[target].append(((better + 1) + (better + equal)).double() / 2)
            super().process_scores_(hrt_batch, target, scores, true_scores, dense_positive_mask)

    known = [torch.from_numpy(split).long() for split in (graph.train, graph.valid)]
    test = torch.from_numpy(graph.test).long()
    started = time.perf_counter()
    Keeping(filtered=True).evaluate(
        model, test, additional_filter_triples=known, use_tqdm=False, batch_size=128
    )
    seconds = time.perf_counter() - started
    return seconds, {side: torch.cat(parts).numpy() for side, parts in ranks.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="WN18RR")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--cache-size", type=int, default=50)
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--eager-steps", type=int, default=40)
    parser.add_argument("--no-pykeen", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    graph = ns.load_graph(asked.data)
    config = ns.TrainConfig(
        data=asked.data,
        dim=asked.dim,
        batch_size=asked.batch_size,
        cache_size=asked.cache_size,
        candidates=asked.candidates,
        alpha3=3.0,
        l2=0.1,
        device="cpu",
    )
    config.check()
    steps = -(-len(graph.train) // config.batch_size)
    ours = time_run(graph, config, epochs=5)
    result = {
        "machine": describe_machine(),
        "options": config.as_dict(),
        "ours": ours.as_dict(),
        "eager": {"epoch_seconds": steps * time_eager(graph, config, asked.eager_steps)},
    }
    print(f"ours   epoch {ours.epoch_seconds:8.3f} s   test {ours.evaluation_seconds:8.3f} s")
    eager = result["eager"]["epoch_seconds"]
    print(f"eager  epoch {eager:8.3f} s   {eager / ours.epoch_seconds:.1f} x ours", flush=True)
    if not asked.no_pykeen:
        seconds = time_pykeen_training(graph, config)
        width = config.build_scoring().entity_width
        model = EmbeddingModel.initialised(
            SCORING["distmult"](width),
            graph.num_entities,
            graph.num_relations,
            torch.Generator().manual_seed(0),
        )
        # Small whole numbers: their dot products are exact in float32, so ranks must be equal.
        for table in model.parameters():
            table.mul_(3 / table.abs().max()).round_()
        evaluation, theirs = time_pykeen_evaluation(graph, model)
        started = time.perf_counter()
        mine = rank_triples(model, graph, graph.test)
        ours_evaluation = time.perf_counter() - started
        same = [
            float(np.mean(mine[side].rank == theirs[name]))
            for side, name in ((Side.HEAD, "head"), (Side.TAIL, "tail"))
        ]
        result["pykeen"] = {
            "sampler": "bernoulli",
            "epoch_seconds": seconds,
            "evaluation_seconds": evaluation,
            "ours_evaluation_seconds": ours_evaluation,
            "ranks_equal": {"head": same[0], "tail": same[1]},
        }
        print(f"pykeen epoch {seconds:8.3f} s   {seconds / ours.epoch_seconds:.1f} x ours")
        print(f"pykeen test  {evaluation:8.3f} s   {evaluation / ours_evaluation:.1f} x ours")
        print(f"ranks equal: heads {same[0]:.6f}, tails {same[1]:.6f}")
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
