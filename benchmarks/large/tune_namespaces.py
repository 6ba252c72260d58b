"""Tune on two Dask workers on two hosts (network namespaces); a trial is a group of processes.

    python benchmarks/large/tune_namespaces.py --data world --trials 4 --processes 2 --out out.json

Needs Linux and root. The scheduler is on the first host and a worker on each. The search is then
repeated by one process without Dask: the trials must be the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from namespaces import HOSTS, SUBNET, two_hosts

SCHEDULER = f"tcp://{SUBNET}.1:8786"


def on(host: str, *words: str) -> list[str]:
    """Return a command of Python in a namespace."""
    return ["ip", "netns", "exec", host, sys.executable, "-m", *words]


@contextmanager
def cluster() -> Iterator[None]:
    """Start a scheduler on the first host and a worker on both; they end with this."""
    with two_hosts(), tempfile.TemporaryDirectory() as folder:
        place = ["--host", f"{SUBNET}.1", "--port", SCHEDULER.rpartition(":")[2]]
        commands = [on(HOSTS[0], "dask", "scheduler", *place, "--no-dashboard")]
        for number, host in enumerate(HOSTS, 1):
            words = ["dask", "worker", SCHEDULER, "--host", f"{SUBNET}.{number}", "--nthreads", "1"]
            words += ["--no-dashboard", "--memory-limit", "0", "--local-directory", folder]
            commands.append(on(host, *words))
        started = []
        try:
            for command in commands:
                log = Path(folder, f"{len(started)}.log").open("w")  # noqa: SIM115
                started.append(subprocess.Popen(command, stdout=log, stderr=log))
            time.sleep(1)
            ready = "from dask.distributed import Client; import sys; "
            ready += "Client(sys.argv[1], timeout=120).wait_for_workers(2, timeout=120)"
            words = ["ip", "netns", "exec", HOSTS[0], sys.executable, "-c", ready, SCHEDULER]
            subprocess.run(words, check=True)
            yield
        finally:
            for each in reversed(started):
                each.terminate()
            for each in started:
                each.wait()


def ranks(host: str) -> int:
    """Return how many processes of a group are at work on a host now."""
    found = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True)
    count = 0
    for pid in found.stdout.split():
        process = Path("/proc", pid)
        try:
            trains = b"nscaching.experiments.tune" in (process / "cmdline").read_bytes()
            count += trains and b"\0LOCAL_RANK=" in (process / "environ").read_bytes()
        except OSError:  # it has just ended
            continue
    return count


def searched(told: str) -> list[dict[str, Any]]:
    """Return of the trials of a search what no clock decides."""
    kept = ("number", "config", "status", "mrr", "best_epoch", "epochs", "error")
    return [{name: trial[name] for name in kept} for trial in json.loads(told)["trials"]]


def main() -> None:
    """Search twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="world")
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--options", nargs="*", default=["--dim=8", "--epochs=2"])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    words = ["nscaching", "tune", given.data, "--trials", str(given.trials), "--method", "random"]
    words += ["--recipe", "paper", "--device", "cpu", "--strata", "4", "--valid-every", "1"]
    words += [*given.options, "--quiet", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        group = ["--dask", SCHEDULER, "--processes", str(given.processes)]
        most = dict.fromkeys(HOSTS, 0)
        with cluster():
            began = time.perf_counter()
            command = on(HOSTS[0], *words, *group, "--out", f"{folder}/both")
            search = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            while search.poll() is None:
                most = {host: max(most[host], ranks(host)) for host in HOSTS}
                time.sleep(0.1)
            both, seconds = search.communicate()[0], time.perf_counter() - began
        alone = [sys.executable, "-m", *words, "--out", f"{folder}/one"]
        one = subprocess.run(alone, stdout=subprocess.PIPE, text=True).stdout
    line = {
        "trials": len(searched(both)),
        "processes_of_a_trial": given.processes,
        "most_processes_at_work": most,
        "seconds": seconds,
        "same_trials_as_one_process": searched(both) == searched(one),
        "mrr": [trial["mrr"] for trial in searched(both)],
    }
    print(json.dumps(line))
    if given.out is not None:
        given.out.write_text(json.dumps(line, indent=1) + "\n")


if __name__ == "__main__":
    main()
