"""Ours, a plain eager implementation, and PyKEEN, timed in one process, the first two alternating.

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
import itertools
import json
import statistics
import time
from pathlib import Path

import nscaching as ns  # before torch: it sets up threads

# isort: split
import numpy as np
import torch

from eager import EagerNSCaching
from nscaching.evaluation import rank_triples
from nscaching.models import SCORING, EmbeddingModel, Side
from nscaching.training import Progress, Trainer
from nscaching.training.benchmarking import describe_machine, time_run


def eager_steps(graph, config):
    """Yield the seconds of one step after another of the eager one, two warm-ups less."""
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
    for number in itertools.count():
        batch = torch.randperm(len(graph.train))[: config.batch_size]
        started = time.perf_counter()
        eager.step(batch)
        if number >= 2:
            yield time.perf_counter() - started


def our_epochs(graph, config):
    """Yield the seconds of one epoch of ours after another, one warm-up less."""
    trainer = Trainer(graph, config, None, Progress("none"))
    trainer.sampler.prepare(trainer.model, trainer.generator)
    for number in itertools.count():
        started = time.perf_counter()
        order = trainer.sampler.begin_epoch(number, trainer.generator)
        trainer.executor.begin_epoch(order, 0)
        for _ in range(0, len(order), config.batch_size):
            trainer.executor.step()
        trainer.executor.loss()
        if number >= 1:
            yield time.perf_counter() - started


def time_in_turns(graph, config, rounds, steps_a_round):
    """Alternate ours and the eager one: what else the machine does meets both alike."""
    steps = -(-len(graph.train) // config.batch_size)
    ours, eager = our_epochs(graph, config), eager_steps(graph, config)
    rows = []
    for _ in range(rounds):
        epoch = next(ours)
        step = statistics.fmean(itertools.islice(eager, steps_a_round))
        rows.append({"ours": epoch, "eager": steps * step, "ratio": steps * step / epoch})
        print("  ".join(f"{name} {value:.3f}" for name, value in rows[-1].items()), flush=True)
    return rows


def pykeen_model(graph, kind, dim):
    from pykeen.triples import CoreTriplesFactory

    training = CoreTriplesFactory.create(
        torch.from_numpy(graph.train).long(), graph.num_entities, graph.num_relations
    )
    return kind(triples_factory=training, embedding_dim=dim, random_seed=0), training


def time_pykeen_training(graph, config):
    """Return seconds per epoch: four epochs less one, so that the start does not count."""
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
    parser.add_argument("--l2", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--eager-steps", type=int, default=8, help="of a round")
    parser.add_argument("--no-pykeen", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    graph = ns.load_graph(asked.data)
    config = ns.TrainConfig(
        data=asked.data,
        dim=asked.dim,
        batch_size=asked.batch_size,
        l2=asked.l2,
        cache_size=asked.cache_size,
        candidates=asked.candidates,
        device="cpu",
    )
    config.check()
    rows = time_in_turns(graph, config, asked.rounds, asked.eager_steps)
    median = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    timing = time_run(graph, config, epochs=3)  # for the evaluation, and as the command gives it
    result = {
        "machine": describe_machine(),
        "options": config.as_dict(),
        "rounds": rows,
        "ours": {**timing.as_dict(), "epoch_seconds": median["ours"]},
        "eager": {"epoch_seconds": median["eager"], "times_ours": median["ratio"]},
    }
    print(f"ours   epoch {median['ours']:8.3f} s   test {timing.evaluation_seconds:8.3f} s")
    print(f"eager  epoch {median['eager']:8.3f} s   {median['ratio']:.1f} x ours", flush=True)
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
        print(f"pykeen epoch {seconds:8.3f} s   {seconds / median['ours']:.1f} x ours")
        print(f"pykeen test  {evaluation:8.3f} s   {evaluation / ours_evaluation:.1f} x ours")
        print(f"ranks equal: heads {same[0]:.6f}, tails {same[1]:.6f}")
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
