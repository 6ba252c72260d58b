"""Train on two hosts that are network namespaces: bytes on the wire, and time at limited bandwidth.

    python benchmarks/large/namespaces.py --data wn18rr --gigabits 0.1 1 --out out.json

Needs Linux and root. Two namespaces are joined by a pair of interfaces, and ``torchrun`` is started
in each as on two hosts. A short and a longer run are compared, so that what a start, an
evaluation and an end send cancels out: the counters of the interface then give bytes per step, and
the epochs of the longer run the time. Both are compared with ``nscaching.distributed.cost``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from nscaching.distributed.cost import Network, bytes_per_step, expected_cost, time_step
from nscaching.runs.api import make_config, recipe_config
from nscaching.training import Progress, TrainConfig
from nscaching.training.opening import open_graph

HOSTS = ("host-a", "host-b")
SUBNET, PORT = "10.77.0", 29500
METHODS: dict[str, dict[str, Any]] = {
    "transe": {"scoring": "transe", "sampler": "nscaching"},
    "complex": {"scoring": "complex", "sampler": "nscaching"},
    "softmax": {"scoring": "complex", "loss": "softmax", "sampler": "uniform", "negatives": 128},
}


def ip(*words: str) -> None:
    """Run a command of iproute2."""
    subprocess.run(words, check=True)


@contextmanager
def two_hosts(gigabits: float | None = None) -> Iterator[None]:
    """Make two namespaces with an interface each, ``wire``, and limit what they may send."""
    try:
        for host in HOSTS:
            ip("ip", "netns", "add", host)
        ip("ip", "link", "add", "wire", "netns", HOSTS[0], "type", "veth",
           "peer", "name", "wire", "netns", HOSTS[1])  # fmt: skip
        for number, host in enumerate(HOSTS, 1):
            ip("ip", "-n", host, "addr", "add", f"{SUBNET}.{number}/24", "dev", "wire")
            for interface in ("wire", "lo"):
                ip("ip", "-n", host, "link", "set", interface, "up")
            if gigabits is not None:
                rate = f"{round(gigabits * 1e6)}kbit"
                ip("tc", "-n", host, "qdisc", "add", "dev", "wire", "root", "tbf",
                   "rate", rate, "burst", "256kb", "latency", "400ms")  # fmt: skip
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], check=False)


def sent(host: str) -> int:
    """Return the bytes that a host has sent so far."""
    counter = "/sys/class/net/wire/statistics/tx_bytes"
    told = subprocess.run(
        ["ip", "netns", "exec", host, "cat", counter], check=True, capture_output=True, text=True
    )
    return int(told.stdout)


def train(options: dict[str, Any], each: int, out: Path) -> dict[str, Any]:
    """Train on both hosts with so many processes each; return the summary and bytes sent."""
    words = [part for k, v in options.items() for part in (f"--{k.replace('_', '-')}", str(v))]
    data = words.pop(words.index("--data") + 1)
    words.remove("--data")
    before, runs = [sent(host) for host in HOSTS], []
    for number, host in enumerate(HOSTS):
        command = ["ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run"]
        command += ["--nnodes", str(len(HOSTS)), "--nproc-per-node", str(each)]
        command += ["--node-rank", str(number), "--master-addr", f"{SUBNET}.1"]
        command += ["--master-port", str(PORT), "-m", "nscaching", "train", data, *words]
        command += ["--out", str(out), "--no-report", "--quiet", "--json"]
        runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    told = [run.communicate()[0] for run in runs]
    if any(run.returncode for run in runs):
        raise SystemExit("a run failed")
    summary: dict[str, Any] = json.loads(told[0])
    after = [sent(host) for host in HOSTS]
    return {**summary, "sent": [b - a for a, b in zip(before, after, strict=True)]}


def follow(page: Path) -> None:
    """Run the blocks of a page that begin with ``# on the first host`` or second, word by word."""
    blocks = re.findall(
        r"^```text\n# on the (first|second) host\n(.*?)^```", page.read_text(), re.M | re.S
    )
    graph = page.resolve().parents[1] / "examples" / "my-graph.tsv"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with two_hosts(), tempfile.TemporaryDirectory() as folder:
        shutil.copy(graph, folder)
        waiting = []
        for number, (which, command) in enumerate(blocks):
            host = HOSTS[which == "second"]
            words = ["ip", "netns", "exec", host, "bash", "-c", command]
            run = subprocess.Popen(words, cwd=folder, env={**os.environ, "PATH": path})
            waiting.append(run)
            follows = number + 1 < len(blocks) and blocks[number + 1][0] != which
            if not (follows and "torchrun" in command) or which == "second":
                codes = [each.wait() for each in waiting]
                if any(codes):
                    raise SystemExit(f"{command} ended with {codes}")
                waiting = []


def measure(
    method: str, options: dict[str, Any], config: TrainConfig, graph: Any, given: Any
) -> Iterator[dict[str, Any]]:
    """Compare one method with the model: bytes without a limit, time with each limit."""
    processes, each = given.processes, given.processes // len(HOSTS)
    steps = math.ceil(len(graph.train) / config.batch(len(graph.train)))
    short, longer = given.epochs
    formula, exchanges = bytes_per_step(graph, config, processes)
    rest = len(graph.train) % config.batch(len(graph.train))
    if rest:  # the last batch of an epoch is smaller
        last, _ = bytes_per_step(graph, replace(config, batch_size=rest), processes)
        formula += (last - formula) / steps
    remote = (processes - each) / (processes - 1)
    timed = time_step(graph, config, processes)
    for gigabits in (None, *given.gigabits):
        found = {}
        for epochs in (short, longer):
            with two_hosts(gigabits), tempfile.TemporaryDirectory() as folder:
                found[epochs] = train({**options, "epochs": epochs}, each, Path(folder, "run"))
                time.sleep(1)
        more = [b - a for a, b in zip(found[short]["sent"], found[longer]["sent"], strict=True)]
        measured = sum(more) / processes / ((longer - short) * steps)
        seconds = [found[epochs]["seconds_per_epoch"] * epochs for epochs in (short, longer)]
        epoch = (seconds[1] - seconds[0]) / (longer - short)
        network = Network(len(HOSTS), gigabits if gigabits is not None else 1e3)
        expected = expected_cost(graph, config, processes, network, timed)
        yield {
            "method": method,
            "processes": processes,
            "gigabits": gigabits,
            "steps_per_epoch": steps,
            "bytes_formula": round(formula * remote),
            "bytes_on_the_wire": round(measured),
            "ratio": measured / (formula * remote),
            "exchanges": exchanges,
            "epoch_seconds": epoch,
            "epoch_seconds_expected": expected.epoch_seconds,
            "communication_seconds_expected": expected.communication_seconds * steps,
        }


def main() -> None:
    """Measure all methods."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="world")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--gigabits", type=float, nargs="*", default=[0.1, 1.0])
    parser.add_argument("--epochs", type=int, nargs=2, default=[1, 3], help="short and longer run")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path, help="only follow the commands of this page")
    given = parser.parse_args()
    if given.page is not None:
        follow(given.page)
        return
    os.environ.setdefault("NSCACHING_WARM_UP", "0")
    lines = []
    for method in given.methods:
        options = {**METHODS[method], "data": given.data, "dim": given.dim, "strata": 8}
        options |= {"recipe": "paper", "valid_every": 0, "device": "cpu"}
        options["checkpoint_seconds"] = 1e6
        graph = open_graph(make_config(None, options))
        config = recipe_config(options, None, graph, Progress("none"))
        for line in measure(method, options, config, graph, given):
            print(json.dumps(line), flush=True)
            lines.append(line)
    if given.out is not None:
        given.out.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
