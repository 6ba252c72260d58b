"""Logistic regression per relation with partial pooling: shrunk to what all relations share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.evaluation.evidence import SCORE_FEATURES, Features
from nscaching.graph.names import Bools, Floats, Integers

#: Ridge penalties of what all relations share and of what one relation adds.
_SHARED_PENALTY, _OWN_PENALTY = 1.0, 10.0
_NEWTON_STEPS = 60
_LEAST_SLOPE = 1e-3
_LEAST_SPREAD = 0.1


@dataclass(frozen=True)
class Curve:
    """A logistic regression: shared weights, and for each relation what it adds to some of them."""

    weights: Floats  #: (features,)
    intercepts: Floats  #: (relations,)
    own: Floats  #: (relations, features), added to the weights

    def of_relation(self, relation: int) -> Floats:
        """Return the weights of one relation; positive for the score. Shape: (features,)."""
        return self._sound(self.weights + self.own[relation])

    def logits(self, features: Features, relations: Integers) -> Floats:
        """Return the log-odds of triples. Shapes: (n, features), (n,) -> (n,)."""
        weights = self._sound(self.weights + self.own)[relations]
        made: Floats = (features * weights).sum(axis=1)
        return made + self.intercepts[relations]

    def _sound(self, weights: Floats) -> Floats:
        first = weights[..., : len(SCORE_FEATURES)]
        np.maximum(first, _LEAST_SLOPE, out=first)  # a better score is always a better answer
        return weights

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, rounded so that the file is small."""
        return {name: _rounded(part) for name, part in self.__dict__.items()}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], features: int, relations: int) -> Curve:
        """Read what :meth:`as_dict` wrote."""
        shapes = {"weights": (features,), "intercepts": (relations,), "own": (relations, features)}
        parts = {name: np.array(given[name], dtype=np.float64) for name in shapes}
        if any(parts[name].shape != shape for name, shape in shapes.items()):
            raise ValueError("its curves are of another graph")
        if not all(np.isfinite(part).all() for part in parts.values()):
            raise ValueError("one of its values is not a number")
        return cls(**parts)


def fit_curve(
    features: Features,
    relations: Integers,
    true: Bools,
    weights: Floats,
    num_relations: int,
    own: tuple[int, ...],
    expected: npt.ArrayLike = 0.0,
) -> Curve:
    """Fit shared weights, and for each relation an intercept and additions to the weights ``own``.

    Weights are drawn to the ``expected`` ones, which count where facts are few; additions are
    drawn to zero, and more so: a relation with few facts is like the whole. A number of the score
    that comes out with a negative weight is left out, and the others are fitted without it.
    """
    order = np.argsort(relations, kind="stable")
    given = relations[order], true[order].astype(np.float64), weights[order]

    def fitted(features: Features) -> Curve:
        mean, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.maximum(spread, _LEAST_SPREAD)  # what hardly varies must not weigh the more
        scaled = ((features - mean) / spread)[order]
        ones = np.ones((len(scaled), 1))
        every, some = np.hstack([ones, scaled]), np.hstack([ones, scaled[:, own]])
        drawn_to = np.append(0.0, np.broadcast_to(expected, mean.shape) * spread)
        shared, additions = _newton(every, some, *given, drawn_to, num_relations)
        added = np.zeros((num_relations, features.shape[1]))
        added[:, own] = additions[:, 1:] / spread[list(own)]
        common = shared[1:] / spread
        return Curve(common, shared[0] + additions[:, 0] - (common + added) @ mean, added)

    made = fitted(features)
    wrong = [place for place in range(len(SCORE_FEATURES)) if made.weights[place] < 0]
    if not wrong:
        return made
    kept = features.copy()
    kept[:, wrong] = 0
    made = fitted(kept)
    made.weights[wrong], made.own[:, wrong] = 0, 0
    return made


def _newton(
    shared: Features,
    own: Features,
    relations: Integers,
    true: Floats,
    weights: Floats,
    expected: Floats,
    num_relations: int,
) -> tuple[Floats, Floats]:
    """Minimise the weighted logistic loss with ridge penalties; rows in the order of relations.

    Newton's method, exact: what relations add is independent given what they share, so that each
    step solves a small system per relation and one of the shared weights (Schur complement).
    Written out because the weights span many orders of magnitude: scikit-learn's solvers measure
    convergence by the mean over all weights and stop while the facts are still misfitted.

    Shapes: (n, s), (n, k), (n,), (n,), (n,), (s,) -> (s,), (relations, k).
    """
    present, first = np.unique(relations, return_index=True)
    parts = [slice(*ends) for ends in zip(first, [*first[1:], len(relations)], strict=True)]
    place = np.searchsorted(present, relations)
    s, k = shared.shape[1], own.shape[1]
    both = np.hstack([own, shared])
    penalty = np.full(s, _SHARED_PENALTY)
    penalty[0] = 1e-6

    def by_relation(rows: Features) -> Features:
        return np.asarray(np.add.reduceat(rows, first, axis=0))

    def loss(beta: Features, added: Features) -> tuple[float, Features]:
        logits = shared @ beta + (own * added[place]).sum(axis=1)
        value = weights @ (np.logaddexp(0, logits) - true * logits)
        ridge = penalty @ (beta - expected) ** 2 + _OWN_PENALTY * (added**2).sum()
        return float(value + 0.5 * ridge), logits

    beta, added = expected.copy(), np.zeros((len(present), k))
    value, logits = loss(beta, added)
    for _ in range(_NEWTON_STEPS):
        chance = expit(logits)
        error, curve = weights * (chance - true), weights * chance * (1 - chance)
        slope = shared.T @ error + penalty * (beta - expected)
        own_slope = by_relation(own * error[:, None]) + _OWN_PENALTY * added
        weighted = own * curve[:, None]
        products = np.stack([weighted[part].T @ both[part] for part in parts])  # (relations, k, .)
        blocks, sides = products[:, :, :k] + _OWN_PENALTY * np.eye(k), products[:, :, k:]
        solved = np.linalg.solve(blocks, np.concatenate([sides, own_slope[:, :, None]], axis=2))
        whole = shared.T @ (shared * curve[:, None]) + np.diag(penalty)
        schur = whole - np.einsum("rks,rkt->st", sides, solved[:, :, :s])
        right = slope - np.einsum("rks,rk->s", sides, solved[:, :, s])
        step = -np.linalg.solve(schur + 1e-9 * np.eye(s), right)
        own_step = -(solved[:, :, s] + solved[:, :, :s] @ step)
        length, downhill = 1.0, float(slope @ step + (own_slope * own_step).sum())
        new, new_logits = loss(beta + step, added + own_step)
        while new > value + 1e-4 * length * downhill and length > 1e-6:
            length /= 2
            new, new_logits = loss(beta + length * step, added + length * own_step)
        gained = value - new
        if gained <= 0:
            break
        beta, added = beta + length * step, added + length * own_step
        value, logits = new, new_logits
        if gained < 1e-7 * abs(value):
            break
    everyone = np.zeros((num_relations, k))
    everyone[present] = added
    return beta, everyone


def expit(logits: Floats) -> Floats:
    """Return the probabilities of log-odds."""
    chances: Floats = 1 / (1 + np.exp(-np.clip(logits, -500, 500)))
    return chances


def logit(probability: float) -> float:
    """Return the log-odds of a probability."""
    return float(np.log(probability / (1 - probability)))


def _rounded(values: Floats) -> Any:
    """Return nested lists of numbers with six digits; additions that are zero stay short."""
    if values.ndim > 1:
        return [_rounded(row) for row in values]
    return [float(f"{value:.6g}") for value in values]
