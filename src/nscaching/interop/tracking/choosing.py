"""Trackers by name: ``tensorboard:DIR`` and the like."""

from __future__ import annotations

from collections.abc import Callable

from nscaching.errors import UserError, nearest_names
from nscaching.interop.tracking.base import Tracker
from nscaching.interop.tracking.csv_tracker import CsvTracker
from nscaching.interop.tracking.mlflow_tracker import MlflowTracker
from nscaching.interop.tracking.tensorboard_tracker import TensorBoardTracker
from nscaching.interop.tracking.wandb_tracker import WandbTracker

#: What makes a tracker out of what stands after the colon.
TRACKERS: dict[str, Callable[[str], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MlflowTracker,
    "wandb": WandbTracker,
    "csv": CsvTracker,
}


def make_tracker(wanted: str | Tracker) -> Tracker:
    """Return the tracker for ``KIND:TARGET``; one that is a tracker already stays."""
    if isinstance(wanted, Tracker):
        return wanted
    if not isinstance(wanted, str):
        raise UserError(f"track takes 'KIND:TARGET' or a Tracker, not {wanted!r}.")
    kind, _, target = wanted.partition(":")
    if kind not in TRACKERS:
        hint = nearest_names(kind, TRACKERS) or f"; there are {', '.join(TRACKERS)}."
        raise UserError(f"There is no tracker '{kind}'{hint}")
    if not target:
        place = "a file" if kind == "csv" else "a folder"
        raise UserError(f"Say where {kind} shall write: {kind}:PATH, with {place} as PATH.")
    return TRACKERS[kind](target)
