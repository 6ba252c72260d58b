"""What happens inside a run: counters of its negatives, cache rows by name, gradient norms."""

from nscaching.tracing.gradients import GradientNorms
from nscaching.tracing.looks import norms_of_negatives
from nscaching.tracing.options import TraceOptions
from nscaching.tracing.tracer import Tracer

__all__ = ["GradientNorms", "TraceOptions", "Tracer", "norms_of_negatives"]
