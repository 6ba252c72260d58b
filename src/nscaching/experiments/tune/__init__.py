"""Hyperparameter search: spaces, SMAC, random search, workers."""

from nscaching.experiments.tune.api import SearchResult, tune

__all__ = ["SearchResult", "tune"]
