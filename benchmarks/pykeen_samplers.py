"""PyKEEN's own samplers and ours, with its TransE and its loop: seconds per epoch, and the MRR.

    python benchmarks/pykeen_samplers.py --epochs 20 --out results.json

The same model, optimiser, batches and epochs for all; the caches are filled before the first epoch.
Seconds are the median over epochs after the first, which compiles kernels.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from pykeen.losses import MarginRankingLoss
from pykeen.models import TransE
from pykeen.training import SLCWATrainingLoop, TrainingCallback

import nscaching as ns
import nscaching.interop.pykeen
from nscaching.evaluation import RankingReport, rank_triples
from nscaching.models import SCORING, EmbeddingModel


class EpochSeconds(TrainingCallback):
    """Notes when each epoch ends, in wall time and in processor time."""

    def __init__(self) -> None:
        super().__init__()
        self.wall, self.processor = [time.perf_counter()], [time.process_time()]

    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        """Read both clocks."""
        self.wall.append(time.perf_counter())
        self.processor.append(time.process_time())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="WN18RR")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--margin", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samplers", default="basic,bernoulli,nscaching")
    parser.add_argument("--options", default="{}", help="negative_sampler_kwargs of ours, as JSON")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    logging.getLogger("pykeen").setLevel(logging.ERROR)
    logging.getLogger("torch_max_mem").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*pin_memory.*")
    graph = ns.load_graph(given.data)
    rows = []
    for sampler in given.samplers.split(","):
        rows.append(measure(given, graph, sampler))
        print(json.dumps(rows[-1]), flush=True)
    settings = {name: value for name, value in vars(given).items() if name != "out"}
    machine = {"cores": os.cpu_count(), "threads": torch.get_num_threads()}
    machine |= {"platform": platform.platform(), "torch": torch.__version__}
    if given.out:
        text = json.dumps({"settings": settings, "machine": machine, "rows": rows}, indent=2)
        given.out.write_text(text + "\n")
    for row in rows:
        print(f"{row['sampler']:10} {row['seconds']:7.2f} s per epoch   MRR {row['mrr']}")


def measure(given: argparse.Namespace, graph: ns.KnowledgeGraph, sampler: str) -> dict[str, Any]:
    """Train with one sampler; return its row of the table."""
    clock = EpochSeconds()
    ours = sampler == "nscaching"
    training = graph.to_pykeen().training
    model = TransE(
        triples_factory=training,
        embedding_dim=given.dim,
        scoring_fct_norm=1,
        loss=MarginRankingLoss(margin=given.margin),
        random_seed=given.seed,
    )
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=training,
        optimizer="adam",
        optimizer_kwargs={"lr": given.lr},
        negative_sampler=sampler,
        negative_sampler_kwargs=json.loads(given.options) if ours else {},
        automatic_memory_optimization=False,
    )
    loop.train(
        training,
        num_epochs=given.epochs,
        batch_size=given.batch_size,
        callbacks=["nscaching", clock] if ours else [clock],
        use_tqdm=False,
    )
    wall, processor = (
        statistics.median(b - a for a, b in pairwise(times[1:]))
        for times in (clock.wall, clock.processor)
    )
    return {
        "sampler": sampler,
        "seconds": round(wall, 3),
        "processor_seconds": round(processor, 3),
        "mrr": round(test_mrr(graph, model), 4),
    }


def test_mrr(graph: ns.KnowledgeGraph, model: TransE) -> float:
    """Rank the test split, filtered, with our ranking: PyKEEN's takes minutes on a CPU."""
    entity, relation = (
        representations[0](None).detach()
        for representations in (model.entity_representations, model.relation_representations)
    )
    same = EmbeddingModel(SCORING["transe"](entity.shape[1]), entity, relation)
    ranks = rank_triples(same, graph, graph.test)
    return float(RankingReport.build(graph, graph.test, ranks, split="test", seconds=0.0).mrr)


if __name__ == "__main__":
    main()
