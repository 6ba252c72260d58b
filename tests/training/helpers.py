"""A graph that can be learnt, short runs on it, and the command line as a process."""

import os
import subprocess
import sys

import numpy as np
import torch
from safetensors.torch import load_file

import nscaching as ns
from nscaching.graph import KnowledgeGraph
from nscaching.training import RunFolder, recipes

#: What decides the bits of a run; every kind of state is in use.
ALL_STATE = {
    "scoring": "transe",
    "sampler": "nscaching",
    "dim": 16,
    "alpha1": 0.5,
    "alpha2": 0.5,
    "cache_size": 8,
    "candidates": 8,
    "l2": 0.01,
    "lr": 0.01,
    "device": "cpu",
}

#: The same for the softmax loss; the sampler comes besides.
SOFTMAX_STATE = {
    "scoring": "complex",
    "loss": "softmax",
    "optimizer": "adagrad",
    "reciprocal": True,
    "n3": 0.01,
    "relation_prediction": 0.3,
    "dropout": 0.1,
    "label_smoothing": 0.1,
    "dim": 16,
    "negatives": 6,
    "cache_size": 8,
    "candidates": 8,
    "pool": 12,
    "lr": 0.1,
    "device": "cpu",
}


def few_valid_facts(monkeypatch, most):
    """Let recipes draw so many facts of valid, as they do where entities are many."""
    monkeypatch.setattr(recipes, "_valid_facts", lambda *_: most)


def ring(entities=30, relations=3, held_out=10, seed=0):
    """Make a graph where relation r leads from entity i to i + r + 1, with names that say so."""
    triples = [
        (f"e{i}", f"r{r}", f"e{(i + r + 1) % entities}")
        for i in range(entities)
        for r in range(relations)
    ]
    order = np.random.default_rng(seed).permutation(len(triples))
    shuffled = [triples[place] for place in order]
    rest = len(shuffled) - 2 * held_out
    return KnowledgeGraph.from_triples(
        shuffled[:rest],
        shuffled[rest : rest + held_out],
        shuffled[rest + held_out :],
        name="ring",
    )


def write_folder(graph, folder):
    """Write a graph as a folder of train.txt, valid.txt and test.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid", "test"):
        lines = (
            f"{graph.entities[h]}\t{graph.relations[r]}\t{graph.entities[t]}\n"
            for h, r, t in graph.split(split)
        )
        if len(graph.split(split)):
            (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def train(graph, **options):
    """Train quietly on the CPU, small unless told otherwise; few tests need probabilities."""
    small = {"dim": 8, "epochs": 2, "batch_size": 16, "device": "cpu", "progress": "none"}
    return ns.train(graph, **{**small, "probabilities": False, **options})


def go_on(folder, **options):
    """Resume the run in a folder, with nothing but what is given."""
    return ns.train(out=folder, resume=True, progress="none", probabilities=False, **options)


def flags(options):
    """Return options as command-line flags."""
    found = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        found += [flag] if value is True else [flag, value]
    return found


def start(*arguments, **options):
    """Start ``python -m nscaching`` with these arguments."""
    return subprocess.Popen(
        [sys.executable, "-m", "nscaching", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", **options},
    )


def finish(process, timeout=120):
    """Wait for a process; return its exit code, stdout and stderr."""
    stdout, stderr = process.communicate(timeout=timeout)
    return process.returncode, stdout, stderr


def run_command(*arguments, **options):
    """Run ``python -m nscaching`` to its end; return its exit code, stdout and stderr."""
    return finish(start(*arguments, **options))


def bits(run):
    """Return the parameters of a run as bytes."""
    return {name: table.float().numpy().tobytes() for name, table in run.model.state().items()}


def kept_bits(folder):
    """Return the model and all of the checkpoint of a run folder, byte for byte."""
    files = (folder / "model.safetensors", folder / "checkpoint" / "state.safetensors")
    return {
        (file.name, name): tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        for file in files
        for name, tensor in load_file(file).items()
    }


def untimed_metrics(folder):
    """Return the lines of metrics.jsonl without what a clock decides."""
    lines = RunFolder(folder).read_metrics()
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
