"""Choose a model's settings as the paper does: by validation MRR under Bernoulli, within its grid.

    python benchmarks/choose_settings.py --cells WN18RR:transe WN18RR:simple --out tries.jsonl

The first try of a cell is the setting named in the package, the others are drawn from the part of
the paper's grid below. Nothing here looks at the test split. Every try is a line of ``--out``;
what is there already is not tried again. ``--best`` prints the best of each cell.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import nscaching as ns
from nscaching.experiments.paper.definitions import chosen
from nscaching.models import SCORING
from nscaching.runs.api import make_trainer
from nscaching.training import Progress

#: The paper's grid without learning rates above 0.003 and dimension 50, which never won a try.
COMMON = {"dim": (100, 200), "batch_size": (1024, 4096)}
MARGIN = {"lr": (3e-4, 1e-3, 3e-3), "margin": (2, 3, 4)}
LOGISTIC = {"lr": (1e-4, 3e-4, 1e-3, 3e-3), "l2": (0.01, 0.1)}


def tries(dataset: str, scoring: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Return the settings to try for a cell."""
    grid = {**COMMON, **(MARGIN if SCORING[scoring].usual_loss == "margin" else LOGISTIC)}
    first = {name: chosen(dataset, scoring)["options"][name] for name in grid}
    every = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    order = np.random.default_rng(seed).permutation(len(every))
    drawn = [every[place] for place in order if every[place] != first]
    inside = all(first[name] in values for name, values in grid.items())
    return ([first] if inside else []) + drawn[: count - inside]


def measure(graph: ns.KnowledgeGraph, scoring: str, options: dict[str, Any], epochs: int) -> dict:
    """Train under Bernoulli and return how the best of four validations went."""
    started = time.time()
    fixed = {"scoring": scoring, "sampler": "bernoulli", "epochs": epochs, "patience": 0}
    every = max(1, epochs // 4)
    trainer = make_trainer(
        graph, out=None, progress=Progress("none"), valid_every=every, **fixed, **options
    )
    trainer.run(resume=False)
    counters = trainer.counters
    mrr = (counters.best_valid or {}).get("mrr")
    return {"valid_mrr": mrr, "best_epoch": counters.best_epoch, "seconds": time.time() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", nargs="*", default=[], metavar="DATA:SCORING")
    parser.add_argument("--tries", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no try after so long")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--best", action="store_true")
    asked = parser.parse_args()
    rows = [json.loads(line) for line in asked.out.open()] if asked.out.exists() else []
    known = [(row["dataset"], row["scoring"], row["options"]) for row in rows]
    ends = time.time() + asked.seconds
    graphs: dict[str, ns.KnowledgeGraph] = {}
    for number, cell in itertools.product(range(asked.tries), asked.cells):
        dataset, scoring = cell.split(":")
        wanted = tries(dataset, scoring, asked.tries, asked.seed)
        if number >= len(wanted) or time.time() > ends:
            continue
        options = wanted[number]
        if (dataset, scoring, options) in known:
            continue
        if dataset not in graphs:
            graphs[dataset] = ns.load_graph(dataset)
        row = {"dataset": dataset, "scoring": scoring, "options": options}
        try:
            row |= measure(graphs[dataset], scoring, options, asked.epochs)
        except ns.NSCachingError as error:  # diverged
            row |= {"valid_mrr": None, "error": str(error)}
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        print(json.dumps(row), flush=True)
        rows.append(row)
        with asked.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
    if asked.best:
        for place in sorted({(row["dataset"], row["scoring"]) for row in rows}):
            tried = [row for row in rows if (row["dataset"], row["scoring"]) == place]
            best = max(tried, key=lambda row: row["valid_mrr"] or 0.0)
            print(*place, f"of {len(tried)}:", best["options"], f"{best['valid_mrr']:.4f}")


if __name__ == "__main__":
    main()
