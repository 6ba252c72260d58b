"""Kill processes of sharded runs at random moments: the end is that of a run that was not broken.

    python benchmarks/reliability/kills_distributed.py --kills 50 --processes 2 --out kills.json

A run on several processes is begun, and random ranks are killed by SIGKILL, at random moments and,
half of the time, while a checkpoint is being written. The launcher starts the group again, which
resumes from the last checkpoint. Model and checkpoint must then be those of an unbroken run of one
process, bit for bit. Then runs are stopped by SIGTERM or Ctrl-C on 4 processes, resumed and
stopped on 2, and resumed on 1, with the same end. Counts are written as they come; the exit code
is 1 after a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from shares import ONE_THREAD, keep

KINDS = {
    "nscaching": ["--scoring", "transe", "--sampler", "nscaching"],
    "softmax": ["--scoring", "complex", "--loss", "softmax", "--sampler", "uniform"],
}
COMMON = ["world", "--recipe", "paper", "--dim", "12", "--device", "cpu", "--strata", "4"]
COMMON += ["--epochs", "12", "--valid-every", "4", "--checkpoint-seconds", "0", "--no-report"]
PATIENCE = 600.0


def start(
    kind: str, out: Path, processes: int, resume: bool = False, restarts: int = 100
) -> subprocess.Popen[str]:
    """Begin or resume a run in a process group of its own."""
    words = ["train", "--out", str(out), "--processes", str(processes)]
    words += ["--max-restarts", str(restarts)]
    words += ["--resume"] if resume else [*COMMON, *KINDS[kind]]
    environment = {**os.environ, **ONE_THREAD, "NSCACHING_WARM_UP": "0"}
    command = [sys.executable, "-m", "nscaching", *words]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def ranks_of(launcher: int) -> list[int]:
    """Return the processes that a launcher has started."""
    try:
        return [
            int(word)
            for word in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        ]
    except OSError:  # it has ended
        return []


def state_of(out: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of the model and the checkpoint of a run."""
    found = {}
    for file in [*out.glob("model-*"), *out.glob("checkpoint/epoch-*-*/*")]:
        where = "model" if file.parent == out else "checkpoint"
        found |= {f"{where}/{file.name}/{name}": t for name, t in load_file(file).items()}
    # A digest is of the name of its checkpoint, too, which has a random part.
    return {name: tensor for name, tensor in found.items() if not name.endswith("/digest")}


def differences(out: Path, unbroken: dict[str, torch.Tensor]) -> list[str]:
    """Return the names of tensors that differ, and of files that should not be there."""
    mine = state_of(out)
    wrong = list(mine.keys() ^ unbroken.keys())
    wrong += [n for n in mine.keys() & unbroken.keys() if not torch.equal(mine[n], unbroken[n])]
    left = [path.name for path in out.rglob(".*") if path.name != ".nscaching.lock"]
    return wrong + [name for name in left if name.endswith(".tmp")]


def broken_by_kills(
    kind: str, out: Path, processes: int, kills: int, chance: random.Random, end: float
) -> Any:
    """Kill ranks of a run until it has had so many or the time is up, then let it end."""
    run, done, saving = start(kind, out, processes), 0, 0
    while done < kills and time.monotonic() < end and run.poll() is None:
        at_save = chance.random() < 0.5
        until = time.monotonic() + (PATIENCE if at_save else chance.uniform(1.0, 12.0))
        until = min(until, end)
        while time.monotonic() < until and run.poll() is None:
            time.sleep(0.002)
            if at_save and any(out.glob("checkpoint/.latest.json.*.tmp")):
                time.sleep(chance.uniform(0, 0.02))
                break
        during = any(out.glob("checkpoint/.latest.json.*.tmp"))
        ranks = ranks_of(run.pid)
        if len(ranks) == processes and time.monotonic() < end:
            os.kill(chance.choice(ranks), signal.SIGKILL)
            done, saving = done + 1, saving + during
            time.sleep(1.0)
    said = run.communicate(timeout=PATIENCE)[1]
    return done, saving, run.returncode, said


def fewer_and_fewer(kind: str, out: Path, chance: random.Random) -> tuple[list[int], str]:
    """Stop a run politely on 4 processes, then on 2; end it on 1."""
    codes, said = [], ""
    for processes in (4, 2, 1):
        run = start(kind, out, processes, resume=processes < 4)
        if processes > 1:
            while not (out / "checkpoint" / "latest.json").exists() and run.poll() is None:
                time.sleep(0.1)
            time.sleep(chance.uniform(8.0 if processes == 2 else 0.5, 12.0))
            if run.poll() is None:
                run.send_signal(chance.choice([signal.SIGTERM, signal.SIGINT]))
        said += run.communicate(timeout=PATIENCE)[1]
        codes.append(run.returncode)
    return codes, said


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--per-run", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--stops", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="kill none after that")
    parser.add_argument("--out", type=Path, default=Path("kills-distributed.json"))
    given = parser.parse_args()
    settings = {"seed": given.seed, "processes": given.processes}
    chance, counts, failures = random.Random(given.seed), Counter[str](), []
    end = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory() as folder:
        unbroken = {}
        for kind in KINDS:
            start(kind, Path(folder, kind), 1).wait(PATIENCE)
            unbroken[kind] = state_of(Path(folder, kind))
        number = 0
        while counts["kills"] < given.kills or counts["stopped runs"] < given.stops:
            if time.monotonic() > end:
                break
            kind = list(KINDS)[number % len(KINDS)]
            out, number = Path(folder, f"run-{number}"), number + 1
            if counts["kills"] < given.kills:
                left = min(given.per_run, given.kills - counts["kills"])
                found = broken_by_kills(kind, out, given.processes, left, chance, end)
                done, saving, code, said = found
                counts.update({"kills": done, "while saving": saving, "killed runs": 1})
                expected = code == 0
            else:
                codes, said = fewer_and_fewer(kind, out, chance)
                counts["stopped runs"] += 1
                counts.update(f"exit {code}" for code in codes)
                expected = codes[-1] == 0 and set(codes[:-1]) <= {0, 130, 143}
            wrong = differences(out, unbroken[kind])
            if wrong or not expected:
                failures.append({"kind": kind, "wrong": wrong[:10], "said": said[-2000:]})
            shutil.rmtree(out, ignore_errors=True)
            keep(given.out, {"counts": dict(counts), "failures": failures, **settings})
            print(json.dumps({"counts": dict(counts), "failures": len(failures)}), flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
