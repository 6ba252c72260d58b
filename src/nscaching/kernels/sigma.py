"""What the paper's sigma is made with, in all its forms (eq:sigma)."""

from __future__ import annotations

#: Scores are rescaled between these quantiles of their row.
LOW_QUANTILE, HIGH_QUANTILE = 0.2, 0.8
#: The largest float16: stored scores are kept in half precision.
LARGEST_SCORE = 65504.0
