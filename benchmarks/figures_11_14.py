"""Why figures 11 and 14 differ from the paper's: what is averaged, and over which negatives.

    python benchmarks/figures_11_14.py WN18RR --out figures-11-14.json
    python benchmarks/figures_11_14.py WN18RR --device cuda --dim 100 --epochs 1000 --long 1000 \
        --seeds 3 --out FILE                                     # as long as the paper trains

Figure 14: TransE with the logistic loss under Bernoulli and under NSCaching. After some epochs the
same positives are scored with four kinds of negatives: those that the sampler itself drew in that
epoch (what a training loss shows), uniform ones, the same for both (an estimate of the objective F
of the paper's theorem, in which all pairs count alike), and the hardest of 50 uniform ones.

Figure 11: SimplE under NSCaching. The share of held-out facts in the cache is taken twice: every
row counts once, and every row counts as often as training draws from it; and the variances of
scores are followed for longer than the 50 epochs of our figure.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import nscaching as ns
from nscaching.evaluation import score_triples
from nscaching.experiments.paper.making import variance_row
from nscaching.graph.pairs import contained
from nscaching.models import Side
from nscaching.runs.api import make_trainer
from nscaching.training import Progress

POSITIVES, HARDEST_OF = 2000, 50


def softplus(values: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, values.astype(np.float64))


def corrupted(graph: ns.KnowledgeGraph, triples: np.ndarray, times: int, seed: int) -> np.ndarray:
    """Replace head or tail by uniform entities; (n, 3) -> (n * times, 3)."""
    rng = np.random.default_rng(seed)
    many = np.repeat(triples, times, axis=0)
    at_head = np.repeat(rng.random(len(triples)) < 0.5, times)
    entities = rng.integers(0, graph.num_entities, len(many))
    many[at_head, 0], many[~at_head, 2] = entities[at_head], entities[~at_head]
    return many


def figure_14(graph: ns.KnowledgeGraph, epochs: int, every: int, options: dict[str, Any]) -> dict:
    """Train both samplers and return the loss over each kind of negatives."""
    rng = np.random.default_rng(0)
    positives = graph.train[rng.choice(len(graph.train), POSITIVES, replace=False)].astype(np.int64)
    uniform = corrupted(graph, positives, HARDEST_OF, 1)
    found = {}
    for sampler in ("bernoulli", "nscaching"):
        points, started = [], time.process_time()
        trainer = make_trainer(
            graph, out=None, progress=Progress("none"), scoring="transe", loss="logistic",
            sampler=sampler, epochs=epochs, valid_every=0, **options,
        )  # fmt: skip
        own = [0.0]
        report = trainer._report_epoch

        def kept(loss: float, bar: Any, report: Any = report, own: list[float] = own) -> None:
            own[0] = loss
            report(loss, bar)

        trainer._report_epoch = kept

        def look(epoch: int, trainer: Any = trainer, points: list = points, own: Any = own) -> None:
            if epoch % every and epoch != 1:
                return
            positive = float(softplus(-score_triples(trainer.model, positives)).mean())
            scores = score_triples(trainer.model, uniform).reshape(POSITIVES, HARDEST_OF)
            points.append({
                "epoch": epoch,
                "own negatives": own[0],
                "positive part": positive,
                "uniform negatives": positive + float(softplus(scores).mean()),
                "hardest of 50": positive + float(softplus(scores.max(1)).mean()),
            })  # fmt: skip

        trainer.after_epoch = look
        trainer.run(resume=False)
        points[-1]["cpu_seconds"] = time.process_time() - started
        found[sampler] = points
    return found


def figure_11(graph: ns.KnowledgeGraph, epochs: int, options: dict[str, Any]) -> dict:
    """Return both shares of held-out facts at the end, and the variances on the way."""
    settings = {"scoring": "simple", "sampler": "nscaching", "seed": 0, "epochs": epochs,
                "alpha3": 3, "known_positives": "allow", **options}  # fmt: skip
    trainer = make_trainer(
        graph, out=None, progress=Progress("none"), **{**settings, "valid_every": 0}
    )
    trainer.run(resume=False)
    held_out = np.concatenate([graph.valid, graph.test]).astype(np.int64)
    shares: dict[str, dict[str, float]] = {}
    for side, rows in ((Side.HEAD, graph.rows.head), (Side.TAIL, graph.rows.tail)):
        ids = trainer.sampler.caches[side].ids.cpu().numpy().astype(np.int64)
        anchor, relation = (np.repeat(each, ids.shape[1]) for each in (rows.anchor, rows.relation))
        ends = (ids.ravel(), anchor) if side is Side.HEAD else (anchor, ids.ravel())
        held = np.stack([ends[0], relation, ends[1]], axis=1).astype(np.int64)
        false = contained(held, held_out, graph.num_entities, graph.num_relations)
        of_row = false.reshape(ids.shape).mean(axis=1)
        drawn = np.diff(rows.offsets)  # positives of a row: how often an epoch draws from it
        shares[side.name.lower()] = {
            "rows alike": float(of_row.mean()),
            "rows as drawn from": float(np.average(of_row, weights=drawn)),
        }
    variance = variance_row(settings, graph, Progress("none"))["variance"]
    return {"shares": shares, "variance": variance}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=60, help="of figure 14")
    parser.add_argument("--long", type=int, default=120, help="epochs of figure 11")
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=1, help="of figure 14")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    graph = ns.load_graph(asked.data)
    found: dict[str, Any] = {"data": asked.data, "dim": asked.dim}
    common = {"dim": asked.dim, "lr": 1e-3, "batch_size": 1024, "device": asked.device}
    every = max(5, asked.epochs // 20)
    for seed in range(asked.seeds):
        for name, normalize in (("normalised", True), ("free", False)):
            options = {**common, "normalize": normalize, "rescale": "none", "alpha3": 1}
            key = f"figure-14, entities {name}" + (f", seed {seed}" if asked.seeds > 1 else "")
            found[key] = figure_14(graph, asked.epochs, every, {**options, "seed": seed})
            asked.out.write_text(json.dumps(found, indent=1) + "\n")
    found["figure-11"] = figure_11(graph, asked.long, {**common, "l2": 0.1})
    asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
