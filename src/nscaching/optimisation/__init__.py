"""Moving tables by the gradients of a few of their rows."""

from nscaching.optimisation.adam import DenseAdam, Gradients

__all__ = ["DenseAdam", "Gradients"]
