"""What it costs that rare pairs share cache rows: valid MRR with and without ``--cache-memory``.

    python benchmarks/large/shared_rows.py --device cuda --out shared_rows.jsonl

Exact rows, bounds of a part of their bytes, and uniform negatives beside; one line of JSON each.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import nscaching as ns
from nscaching.sampling import SamplerOptions
from nscaching.sampling.shared_rows import row_bytes, row_counts

METHODS = {
    "TransE": {"scoring": "transe", "dim": 100, "margin": 4.0, "lr": 1e-3},
    "ComplEx softmax": {"scoring": "complex", "loss": "softmax", "dim": 100, "lr": 1e-3},
}
CACHE = {"cache_size": 50, "candidates": 50, "recipe": "paper"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["FB15K237", "WN18RR"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--parts", type=float, nargs="+", default=[0.5, 0.25, 0.1])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="file that each line is added to")
    given = parser.parse_args()
    for data in given.data:
        graph = ns.load_graph(data)
        options = SamplerOptions(cache_size=CACHE["cache_size"])
        exact = sum(row_counts(graph, options)) * row_bytes(options, graph.num_entities) / 2**20
        bounds = {"exact": 0, **{f"{part:g}": max(1, round(part * exact)) for part in given.parts}}
        for method in given.methods:
            for name, bound in [*bounds.items(), ("uniform", 0)]:
                for seed in range(given.seeds):
                    uniform = {"sampler": "uniform"} if name == "uniform" else {}
                    begin = time.perf_counter()
                    run = ns.train(
                        graph,
                        **{**METHODS[method], **CACHE, **uniform},
                        cache_memory=bound,
                        epochs=given.epochs,
                        valid_every=given.epochs,
                        batch_size=given.batch_size,
                        seed=seed,
                        device=given.device,
                        progress="none",
                        remarks=False,
                    )
                    told = {"data": data, "method": method, "rows": name, "megabytes": bound}
                    told |= {"exact_megabytes": round(exact, 1), "seed": seed}
                    told |= {"valid_mrr": round(run.summary["valid"]["mrr"], 4)}
                    told |= {"epochs": given.epochs, "device": str(run.summary["device"])}
                    told |= {"seconds": round(time.perf_counter() - begin, 1)}
                    print(json.dumps(told), flush=True)
                    if given.out is not None:
                        with given.out.open("a") as file:
                            file.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
