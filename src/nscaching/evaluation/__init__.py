"""Link prediction and triplet classification."""

from __future__ import annotations

from nscaching.evaluation.classification import (
    ClassificationReport,
    Thresholds,
    classification_report,
    classify_triples,
    fit_thresholds,
    labelled_triples,
    learn_thresholds,
    score_triples,
)
from nscaching.evaluation.metrics import RankingMetrics, RankingReport, find_leakage
from nscaching.evaluation.negatives import Drawing, seeded_negatives
from nscaching.evaluation.ranking import Ranks, rank_triples

__all__ = [
    "ClassificationReport",
    "Drawing",
    "RankingMetrics",
    "RankingReport",
    "Ranks",
    "Thresholds",
    "classification_report",
    "classify_triples",
    "find_leakage",
    "fit_thresholds",
    "labelled_triples",
    "learn_thresholds",
    "rank_triples",
    "score_triples",
    "seeded_negatives",
]
