"""Searching the numbers that no user should set by hand: spaces, SMAC, random search."""

from nscaching.tuning.api import tune
from nscaching.tuning.result import SearchResult

__all__ = ["SearchResult", "tune"]
