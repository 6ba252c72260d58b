"""Trackers: what a run writes for TensorBoard, MLflow, Weights & Biases or a spreadsheet."""

from nscaching.tracking.base import RunStart, Tracker
from nscaching.tracking.choosing import TRACKERS, make_tracker
from nscaching.tracking.fan_out import Tracking

__all__ = ["TRACKERS", "RunStart", "Tracker", "Tracking", "make_tracker"]
