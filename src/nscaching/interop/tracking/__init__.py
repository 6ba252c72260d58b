"""Trackers: what a run writes for TensorBoard, MLflow, Weights & Biases or a spreadsheet."""

from nscaching.interop.tracking.base import RunStart, Tracker
from nscaching.interop.tracking.choosing import TRACKERS, make_tracker
from nscaching.interop.tracking.fan_out import Tracking

__all__ = ["TRACKERS", "RunStart", "Tracker", "Tracking", "make_tracker"]
