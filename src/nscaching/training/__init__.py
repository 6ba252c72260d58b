"""Training: the configuration, the loop, checkpoints and the run folder."""

from __future__ import annotations

from nscaching.training.config import TrainConfig
from nscaching.training.folder import RunFolder
from nscaching.training.loop import Trainer
from nscaching.training.progress import Progress

__all__ = ["Progress", "RunFolder", "TrainConfig", "Trainer"]
