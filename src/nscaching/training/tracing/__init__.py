"""What happens inside a run: counters of its negatives, cache rows by name, gradient norms."""

from nscaching.training.tracing.gradients import GradientNorms
from nscaching.training.tracing.snapshots import norms_of_negatives
from nscaching.training.tracing.tracer import TraceOptions, Tracer

__all__ = ["GradientNorms", "TraceOptions", "Tracer", "norms_of_negatives"]
