"""Numbers that all forms of a kernel share."""

from __future__ import annotations

#: The largest number of a row of an int8 copy becomes this.
LARGEST = 127
#: Numbers below this count as zero there: the scale of a row must not be.
TINY = 1e-30
#: The paper's sigma rescales scores between these quantiles of their row (eq:sigma).
LOW_QUANTILE, HIGH_QUANTILE = 0.2, 0.8
#: The largest float16: stored scores are kept in half precision.
LARGEST_SCORE = 65504.0
#: Draws for a uniform candidate before it is given up.
TRIES = 17
#: What keeps Adagrad from dividing by zero.
ADAGRAD_EPSILON = 1e-10
#: The most steps that Adam's update of a row without a gradient is deferred.
MOST_DEFERRED = 16
#: A GPU keeps the sizes of so many steps of Adam.
KEPT_STEPS = 2 * MOST_DEFERRED
