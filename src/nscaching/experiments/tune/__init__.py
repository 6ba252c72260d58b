"""Searching the numbers that no user should set by hand: spaces, SMAC, random search."""

from nscaching.experiments.tune.api import tune
from nscaching.experiments.tune.result import SearchResult

__all__ = ["SearchResult", "tune"]
