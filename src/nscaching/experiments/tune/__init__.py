"""Hyperparameter search: spaces, SMAC, random search, workers."""

from nscaching.experiments.tune.api import tune
from nscaching.experiments.tune.result import SearchResult

__all__ = ["SearchResult", "tune"]
