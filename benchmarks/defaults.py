"""``train`` with no option beside Bernoulli sampling with the logistic loss, on any graphs.

    python benchmarks/defaults.py --graphs world WN18 FB13 --seeds 1 2 3 --out FILE

A line per run has the epoch that valid chose, the test MRR and the seconds in epochs. Runs that the
file holds already are not repeated. ``--longer`` trains Bernoulli until it gains no more.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import nscaching as ns
from nscaching.runs.api import make_trainer
from nscaching.training import Progress

BERNOULLI = {"recipe": "paper", "scoring": "complex", "sampler": "bernoulli"}
LONGER = {"epochs": 1000, "patience": 5, "valid_every": 10}
SHOWN = ("recipe", "scoring", "sampler", "loss", "dim", "batch_size", "epochs", "n3", "l2", "lr")
SHOWN += ("relation_prediction", "reciprocal", "optimizer", "patience")


def measured(name: str, kind: str, seed: int, device: str, options: dict[str, Any]) -> dict:
    """Train once; rank the test facts with the model that valid chose."""
    start = time.perf_counter()
    trainer = make_trainer(
        ns.load_graph(name),
        out=None,
        progress=Progress("none"),
        seed=seed,
        device=device,
        **options,
    )
    trainer.run(resume=False)
    report = trainer.validation.rank(trainer.best_model(), "test")
    counters, config = trainer.counters, trainer.config
    return {
        "graph": name,
        "kind": kind,
        "seed": seed,
        "device": device,
        "mrr": round(report.mrr, 5),
        "hits@10": round(report.hits_at_10, 5),
        "valid_mrr": round((counters.best_valid or {}).get("mrr", 0.0), 5),
        "best_epoch": counters.best_epoch,
        "epochs_trained": counters.epoch,
        "epoch_seconds": round(counters.epoch_seconds, 1),
        "seconds": round(time.perf_counter() - start, 1),
        "options": {option: getattr(config, option) for option in SHOWN},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=["world"])
    parser.add_argument("--kinds", nargs="+", default=["default", "bernoulli"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--longer", action="store_true", help="Bernoulli until it gains no more")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    options = {"default": {}, "bernoulli": BERNOULLI | (LONGER if asked.longer else {})}
    lines = asked.out.read_text().splitlines() if asked.out.exists() else []
    done = {tuple(json.loads(line)[key] for key in ("graph", "kind", "seed")) for line in lines}
    for seed in asked.seeds:
        for name in asked.graphs:
            for kind in asked.kinds:
                if (name, kind, seed) not in done:
                    line = measured(name, kind, seed, asked.device, options[kind])
                    print(json.dumps(line), flush=True)
                    with asked.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
