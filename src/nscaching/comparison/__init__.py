"""Comparing samplers: the same options and budget for all, one table, one picture."""

from __future__ import annotations

from nscaching.comparison.results import Comparison, RunResult
from nscaching.comparison.running import compare

__all__ = ["Comparison", "RunResult", "compare"]
