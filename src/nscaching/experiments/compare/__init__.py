"""Comparing samplers: the same options and budget for all, one table, one picture."""

from __future__ import annotations

from nscaching.experiments.compare.results import Comparison, RunResult
from nscaching.experiments.compare.running import compare

__all__ = ["Comparison", "RunResult", "compare"]
