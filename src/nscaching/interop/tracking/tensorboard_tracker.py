"""TensorBoard: curves in a folder that ``tensorboard --logdir`` shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nscaching.extras import need
from nscaching.files import explained_writes
from nscaching.interop.tracking.base import RunStart, Tracker


class TensorBoardTracker(Tracker):
    """Writes ``train/loss``, ``valid/mrr`` and so on against the epoch."""

    def __init__(self, target: str) -> None:
        need("tensorboard", "tensorboard", "track tensorboard")
        self.folder = Path(target).expanduser()
        self._writer: Any = None

    def on_start(self, start: RunStart) -> None:
        """Open the log; of a run that goes on, later epochs are taken back."""
        writer = need("torch.utils.tensorboard", "tensorboard", "track tensorboard").SummaryWriter
        purge = start.epochs_done + 1 if start.epochs_done else None
        with explained_writes(self.folder):
            self._writer = writer(str(self.folder), purge_step=purge)
        options = "\n".join(f"    {name}: {value}" for name, value in start.config.items())
        self._writer.add_text("config", options, start.epochs_done)

    def on_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """Add the loss."""
        self._add("train", epoch, values)

    def on_evaluation(self, epoch: int, split: str, values: Mapping[str, float]) -> None:
        """Add the metrics of a split."""
        self._add(split, epoch, values)

    def on_end(self, status: str) -> None:
        """Close the log."""
        self._writer.close()

    def _add(self, split: str, epoch: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{split}/{name}", value, epoch)
        self._writer.flush()
