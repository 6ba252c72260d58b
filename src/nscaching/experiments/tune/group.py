"""A trial that a group of processes trains, started as ``nscaching train --processes`` does it.

This module, when it is run, is the launcher of a trial's processes, and each of them. The launcher
is a process of its own: it handles signals, and a worker may be a thread. The processes train the
trial as a single one would, and rank 0 writes the result down.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from nscaching.artefacts.files import write_text
from nscaching.errors import LostPeers, TrainingInterrupted, UserError
from nscaching.experiments.runner import failure
from nscaching.experiments.tune.objective import GraphRuns
from nscaching.experiments.tune.trials import FAILED, TrialResult
from nscaching.processes import end_with_parent, end_worker, is_main, is_worker, launch
from nscaching.training import RunFolder

MODULE = "nscaching.experiments.tune.group"
#: How often the processes are started again after one of them is lost.
_RESTARTS = 3
#: Seconds that the group of a worker that was killed has to save the same trial.
_SAVING_SECONDS = 60.0


def train_in_group(
    processes: int, base: Path, out: Path, options: Mapping[str, Any], seconds: float | None
) -> TrialResult:
    """Train a trial on so many processes of this machine, which share the threads of torch."""
    share = str(max(1, torch.get_num_threads() // processes))
    named = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), share)
    _wait_for(RunFolder(out))
    with tempfile.TemporaryDirectory(prefix="nscaching-trial-") as folder:
        asked, answer = Path(folder, "asked.json"), Path(folder, "answer.json")
        trial = {"base": str(base), "out": str(out), "options": dict(options), "seconds": seconds}
        write_text(asked, json.dumps({"processes": processes, "trial": trial}))
        command = [sys.executable, "-m", MODULE, str(asked), str(answer)]
        code, said = _run(command, {**os.environ, **named})
        if answer.exists():
            return TrialResult(**json.loads(answer.read_text()))
    if code > 128:
        raise TrainingInterrupted("The processes of a trial were stopped.", code - 128)
    last = said.strip().splitlines()[-1:] or [f"exit code {code}"]
    return TrialResult(FAILED, error=f"its processes ended: {last[0]}")


def _wait_for(folder: RunFolder) -> None:
    ends = time.monotonic() + _SAVING_SECONDS
    while folder.exists() and not folder.lock.is_free() and time.monotonic() < ends:
        time.sleep(0.1)


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a launcher; one that is interrupted with this process is waited for, as it saves."""
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as launcher:
        try:
            said = launcher.communicate()[1]
        except BaseException:
            launcher.send_signal(signal.SIGTERM)
            launcher.communicate()  # which reads what it says: it would wait for a reader
            raise
    return launcher.returncode, said


def main() -> None:
    """Launch the processes of a trial, or train it as one of them."""
    asked, answer = map(Path, sys.argv[1:])
    told = json.loads(asked.read_text())
    if not is_worker():
        end_with_parent()
        sys.exit(launch(sys.argv[1:], told["processes"], _RESTARTS, MODULE))
    if is_main():
        answer.unlink(missing_ok=True)  # of an earlier attempt
    code, result, trial = 0, TrialResult(FAILED), told["trial"]
    try:
        paths = Path(trial["base"]), Path(trial["out"])
        result = GraphRuns().train(*paths, trial["options"], trial["seconds"])
    except TrainingInterrupted as error:
        code = 128 + error.number
    except LostPeers:
        code = LostPeers.exit_code
    except Exception as error:
        code, fatal = 1, isinstance(error, UserError)
        result = TrialResult(FAILED, error=failure(error), fatal=fatal)
    if is_main() and code <= 1:
        write_text(answer, json.dumps(asdict(result)))
    if code:
        os._exit(end_worker(code))  # its peers may be gone: waiting for them would hang


if __name__ == "__main__":
    main()
