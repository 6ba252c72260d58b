"""Moving tables by the gradients of a few of their rows."""

from nscaching.optim.adam import DenseAdam, Gradients

__all__ = ["DenseAdam", "Gradients"]
