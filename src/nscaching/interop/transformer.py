"""Embeddings as a step of a scikit-learn pipeline: names go in, vectors come out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import normalize

from nscaching.errors import UserError, nearest_names, shown

if TYPE_CHECKING:
    from nscaching.runs.run import Run


class EntityVectors(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn entity names into their embeddings.

    Args:
        run: A run, or its folder.
        unknown: What is done with a name that the run does not have: ``"error"``, or ``"zero"`` for
            a vector of zeros.
        unit: Whether all vectors are scaled to length one.

    Examples:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from nscaching.interop import EntityVectors
        >>> pipeline = make_pipeline(EntityVectors(run), LogisticRegression())
        >>> fitted = pipeline.fit(["France", "Spain", "Paris", "Madrid"], [1, 1, 0, 0])

    """

    def __init__(self, run: Run | str | Path, *, unknown: str = "error", unit: bool = False):
        self.run = run
        self.unknown = unknown
        self.unit = unit

    def fit(self, X: Any, y: Any = None) -> EntityVectors:
        """Get the embeddings; nothing is learnt but the number of columns.

        Args:
            X: Names: one column, or several, whose vectors are concatenated (two columns describe
                a pair of entities).
            y: Ignored.

        Returns:
            This transformer.

        """
        if self.unknown not in ("error", "zero"):
            raise UserError(f"unknown must be 'error' or 'zero', not {self.unknown!r}.")
        from nscaching.runs.api import load_run

        run = load_run(self.run) if isinstance(self.run, str | Path) else self.run
        self.vectors_ = run.embeddings("entity")
        if self.unit:
            self.vectors_ = normalize(self.vectors_)
        self.places_ = {name: place for place, name in enumerate(run.graph.entities)}
        self.n_features_in_ = _columns(X).shape[1]
        return self

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the vectors of names.

        Args:
            X: Names; shape: (n,) or (n, m).

        Returns:
            Shape: (n, m * width).

        """
        if not hasattr(self, "vectors_"):
            self.fit(X)  # there is nothing to learn: a fresh one can be used at once
        names = _columns(X)
        if names.shape[1] != self.n_features_in_:
            raise UserError(
                f"X has {names.shape[1]} columns, and had {self.n_features_in_} in fit."
            )
        flat = [self.places_.get(name, -1) for name in names.reshape(-1).tolist()]
        places = np.array(flat, dtype=np.int64)
        if self.unknown == "error" and (places < 0).any():
            name = str(names.reshape(-1)[int(np.argmax(places < 0))])
            hint = nearest_names(name, self.places_) or "."
            raise UserError(
                f"The run has no entity '{shown(name)}'{hint} With unknown='zero' it gets zeros."
            )
        vectors: npt.NDArray[np.float32] = np.where(
            (places < 0)[:, None], np.float32(0), self.vectors_[places]
        )
        return vectors.reshape(len(names), -1)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Return one name per component of a vector, such as ``entity0_12``.

        Args:
            input_features: Ignored.

        Returns:
            Shape: (m * width,).

        """
        width = self.vectors_.shape[1]
        names = [
            f"entity{column}_{i}" for column in range(self.n_features_in_) for i in range(width)
        ]
        return np.array(names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _columns(X: Any) -> npt.NDArray[Any]:
    """Return the names as an array of shape (n, m)."""
    names = np.asarray(X, dtype=object)
    if names.ndim == 1:
        names = names[:, None]
    if names.ndim != 2:
        raise UserError(f"X must be one or more columns of names, not of shape {names.shape}.")
    return names
