"""Comparing samplers: the same options and budget for all, one table, one picture."""

from __future__ import annotations

from nscaching.experiments.compare.api import compare
from nscaching.experiments.compare.comparison import Comparison
from nscaching.experiments.runs import RunResult

__all__ = ["Comparison", "RunResult", "compare"]
