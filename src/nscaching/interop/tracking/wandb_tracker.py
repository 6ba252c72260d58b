"""Weights & Biases, offline: a folder that ``wandb sync`` sends when you want it to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nscaching.extras import need
from nscaching.files import explained_writes
from nscaching.interop.tracking.base import RunStart, Tracker

PROJECT = "nscaching"


class WandbTracker(Tracker):
    """Logs ``train/loss``, ``valid/mrr`` and so on; nothing leaves the machine.

    ``WANDB_MODE`` and the other variables of W&B are heeded where they are set.
    """

    def __init__(self, target: str) -> None:
        need("wandb", "wandb", "track wandb")
        self.folder = Path(target).expanduser()
        self._run: Any = None
        self._step = 0

    def on_start(self, start: RunStart) -> None:
        """Open a run with its options."""
        import wandb

        with explained_writes(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=start.name,
            dir=str(self.folder),
            config=dict(start.config),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=wandb.Settings(silent=True, console="off"),
        )

    def on_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """Log the loss."""
        self._log("train", epoch, values)

    def on_evaluation(self, epoch: int, split: str, values: Mapping[str, float]) -> None:
        """Log the metrics of a split; those of an earlier epoch's model stand at the last one."""
        self._log(split, epoch, values)

    def on_end(self, status: str) -> None:
        """Close the run; only a finished one counts as a success."""
        self._run.finish(exit_code=0 if status == "finished" else 1)

    def _log(self, split: str, epoch: int, values: Mapping[str, float]) -> None:
        self._step = max(self._step, epoch)  # W&B drops what goes back
        logged = {f"{split}/{name}": value for name, value in values.items()}
        self._run.log(logged, step=self._step)
