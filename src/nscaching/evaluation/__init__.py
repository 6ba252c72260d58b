"""Link prediction and, later, triplet classification."""

from __future__ import annotations

from nscaching.evaluation.metrics import RankingMetrics, RankingReport
from nscaching.evaluation.ranking import Ranks, rank_triples

__all__ = ["RankingMetrics", "RankingReport", "Ranks", "rank_triples"]
