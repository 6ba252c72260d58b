"""Adagrad by rows on a GPU, alone, on made gradients like those of a step over cached candidates.

    python benchmarks/adagrad_rows.py --out FILE

A line per shape and setting: microseconds with and without the sort of ids, for several numbers of
gradients that are read at once and of numbers of a row that a program takes. Ids are drawn so that
few entities are in most rows of the cache; ``most`` is how often the most frequent one comes.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import torch
from triton.testing import do_bench

from nscaching.kernels import adagrad_gpu

#: Entities, width of a row, questions, candidates of each, pool, and how unevenly ids are drawn.
SHAPES = {
    "WN18RR, d 1000": (40_943, 2000, 400, 50, 1000, 1.6),
    "world, d 256": (7_134, 512, 512, 50, 500, 1.5),
    "FB15K-237, d 512": (14_541, 1024, 2000, 50, 1000, 2.0),
    "hubs": (143_329, 512, 2000, 100, 2000, 8.0),
}


def arguments(shape: str) -> list[Any]:
    """Return arguments of ``adagrad_large``: some gradients written out, the others products."""
    entities, width, questions, candidates, pool, uneven = SHAPES[shape]
    torch.manual_seed(0)
    here: dict[str, Any] = {"device": "cuda"}
    table, square = torch.randn(entities, width, **here), torch.rand(entities, width, **here)
    drawn = torch.rand(questions, candidates + 1, **here) ** uneven * entities
    ids = torch.randperm(entities, **here)[drawn.long().clamp_max(entities - 1)]
    written = torch.randint(entities, (2 * questions + pool,), **here)
    rows = 1e-3 * torch.randn(len(written), width, **here)
    slopes, vectors = 1e-3 * torch.randn(ids.shape, **here), torch.randn(questions, width, **here)
    count = torch.zeros(1, dtype=torch.int64, **here)
    every = torch.cat([written, ids.flatten()])
    products = slopes, vectors, None
    return [table, square, every, rows, products, count, torch.ones((), **here), 0.1, 0.0]


def microseconds(job: Any) -> float:
    return round(1e3 * do_bench(job, warmup=5, rep=20, return_mode="median"), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    for shape in SHAPES:
        given = arguments(shape)
        ids = given[2].to(torch.int32)
        often = torch.bincount(given[2])
        sort = microseconds(lambda ids=ids: ids.sort(stable=True))
        for at_once, block in itertools.product((2, 4, 8, 16), (512, 1024, 2048)):
            adagrad_gpu._AT_ONCE, adagrad_gpu._LARGE_BLOCK = at_once, block
            took = microseconds(lambda given=given: adagrad_gpu.adagrad_large(*given))
            line = {"shape": shape, "ids": len(ids), "rows": int((often > 0).sum())}
            line |= {"most": int(often.max()), "at_once": at_once, "block": block}
            line |= {"us": round(took - sort, 1), "us_with_sort": took}
            print(json.dumps(line), flush=True)
            with asked.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
