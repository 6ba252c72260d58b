"""Kernel warm-up: a run on a tiny graph, in a process of its own, while kernels are not on disk.

Numba keeps a kernel on disk as it is after a second optimisation, with all that calls it; the
process that compiled it keeps what the first one made. Both are right and round differently.
So a process that compiles is not to train: the first run on a machine would differ from the same
run later on, and one that was stopped from what it is when resumed.

``NSCACHING_WARM_UP=0`` turns it off; kernels are compiled where they are used then. The name of
0.1.0, ``NSCACHING_REHEARSAL``, is read where the new one is not set.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nscaching.kernels.availability import HAVE_NUMBA
from nscaching.training.config import TrainConfig
from nscaching.training.step import SUMMED_FROM

_SWITCH, _OLD_SWITCH = "NSCACHING_WARM_UP", "NSCACHING_REHEARSAL"
_PACKAGE = Path(__file__).parent.parent
#: What the run of the warm-up has less of; the kernels are the same ones.
_SMALL: dict[str, Any] = {
    "data": "",
    "init_from": None,
    "dim": 4,
    "epochs": 2,
    "max_seconds": None,
    "batch_size": 16,
    "valid_every": 1,
    "patience": 0,
    "device": "cpu",
    "seed": 0,
    "preset": None,
    "generator_dim": 4,
    "generator_epochs": 0,
}
#: Options of which runs with the same kernels have the same values, or have them above 0.
_SAME = (
    *("scoring", "normalize", "sampler", "loss", "pool", "int8", "optimizer", "table"),
    *("reciprocal", "trace"),
)
_USED = ("alpha2", "nu", "n3", "relation_prediction", "pretrain_epochs")
#: Options that say how many candidates a question has: many have other kernels than few.
_CANDIDATES = ("cache_size", "candidates", "negatives")
_ENTITIES, _RELATIONS, _FACTS, _HELD_OUT = 20, 3, 80, 10
_waits: list[float] = []  #: seconds of each warm-up that this process waited for


def warm_up(config: TrainConfig, say: Callable[[str], None]) -> None:
    """See that the CPU kernels of a run are on disk."""
    if not HAVE_NUMBA or os.environ.get(_SWITCH, os.environ.get(_OLD_SWITCH)) == "0":
        return
    marker = _marker(config)
    if marker is None or marker.exists():
        return
    say("Compiling kernels for this kind of run; this takes up to half a minute, once.")
    began = time.monotonic()
    # A warm-up that fails is no loss: the run compiles what it needs by itself.
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            [sys.executable, "-c", f"from {__name__} import perform; perform()"],
            input=json.dumps(config.as_dict()),
            env={**os.environ, _SWITCH: "0"},
            text=True,
            capture_output=True,
            check=True,
        )
    with contextlib.suppress(OSError):
        marker.touch()
    _waits.append(time.monotonic() - began)


def seconds_waited() -> float:
    """Return how long this process has waited for warm-ups."""
    return sum(_waits)


def _marker(config: TrainConfig) -> Path | None:
    """Return the file that says that the kernels of such a run, by this code, are on this machine.

    None where Numba has no folder to keep kernels in.
    """
    import numba
    from llvmlite import binding

    from nscaching.kernels.adam_cpu import move

    folder = move.stats.cache_path
    if folder is None:
        return None
    files = sorted(_PACKAGE.rglob("*.py"))
    stamps = [(file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    machine = numba.__version__, binding.get_host_cpu_name(), platform.python_version()
    told = [getattr(config, name) for name in _SAME]
    used = [getattr(config, name) > 0 for name in _USED]
    kinds = told, used, config.strata > 1, _candidates(config)
    text = repr((stamps, machine, kinds))
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Path(folder) / f"warm-{name}"


def _candidates(config: TrainConfig) -> dict[str, Any]:
    """Return fewer candidates of which the kernels are the same."""
    asked = {name: getattr(config, name) for name in _CANDIDATES}
    return {name: count and min(count, SUMMED_FROM + 1) for name, count in asked.items()}


def perform() -> None:
    """Train on a tiny graph with the options on the standard input; the model is thrown away."""
    import numpy as np

    from nscaching.graph import KnowledgeGraph
    from nscaching.training.loop import Trainer
    from nscaching.training.progress import Progress

    config = TrainConfig.from_mapping(json.load(sys.stdin), "warm-up")
    small = {**_SMALL, **_candidates(config)}
    small["pretrain_epochs"] = min(1, config.pretrain_epochs)
    small["strata"] = min(2, config.strata)
    limits = (_ENTITIES, _RELATIONS, _ENTITIES)
    facts = np.random.default_rng(0).integers(limits, size=(_FACTS, 3)).astype(str).tolist()
    graph = KnowledgeGraph.from_triples(facts[_HELD_OUT:], valid=facts[:_HELD_OUT])
    Trainer(graph, replace(config, **small), None, Progress("none")).run(resume=False)
