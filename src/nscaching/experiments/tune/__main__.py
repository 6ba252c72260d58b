"""The launcher of a trial's processes, and each of them; see ``group.py``.

The processes train the trial as a single one would, and rank 0 writes the result down.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from nscaching.artefacts.files import write_text
from nscaching.distributed.launch import end_with_parent, end_worker, is_main, is_worker, launch
from nscaching.errors import LostPeers, TrainingInterrupted, UserError
from nscaching.experiments.runner import failure
from nscaching.experiments.tune.group import MODULE
from nscaching.experiments.tune.objective import GraphRuns
from nscaching.experiments.tune.trials import FAILED, TrialResult

#: How often the processes are started again after one of them is lost.
_RESTARTS = 3


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
