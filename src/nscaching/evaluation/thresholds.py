"""From which score on a triple counts as true: one threshold per relation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]
_Limits = np.finfo(np.float32)


@dataclass(frozen=True)
class Thresholds:
    """One threshold per relation; a triple is taken as true from its threshold on."""

    values: _Floats  #: (relations,), ``overall`` for a relation that had nothing to learn from
    own: npt.NDArray[np.bool_]  #: (relations,), whether the relation has a threshold of its own
    overall: float  #: the best single threshold for all relations

    def margins(self, scores: npt.ArrayLike, relations: npt.NDArray[np.integer]) -> _Floats:
        """Return how far each score is above the threshold of its relation; from 0 on: true."""
        above: _Floats = _finite(scores) - self.values[relations]
        return above


def fit_thresholds(
    scores: npt.ArrayLike,
    relations: npt.NDArray[np.integer],
    true: npt.NDArray[np.bool_],
    num_relations: int,
) -> Thresholds:
    """Return the thresholds of highest accuracy on labelled triples. Shapes: (n,) three times.

    The optimum is exact: every cut between two different scores is compared. The threshold is
    the middle of its cut. Of equally good cuts a relation takes the one nearest to the best
    threshold overall, which so decides where the relation's own triples do not.
    """
    finite = _finite(scores)
    if len(finite) == 0:
        raise ValueError("thresholds need at least one labelled triple")
    overall = float(
        _best_cuts(finite, np.zeros(len(finite), dtype=np.int64), true, float(np.median(finite)))[0]
    )
    values = np.full(num_relations, overall)
    own = np.bincount(relations, minlength=num_relations) > 0
    values[own] = _best_cuts(finite, relations, true, overall)
    return Thresholds(values, own, overall)


def _best_cuts(
    scores: _Floats,
    groups: npt.NDArray[np.integer],
    true: npt.NDArray[np.bool_],
    prefer: float,
) -> _Floats:
    """Return the best threshold of each group that occurs, in the order of the groups.

    There is a cut before each triple of a group in the order of scores, and one after the last.
    With all of the group taken as true, moving the cut over a triple wins one where it is false and
    loses one where it is true.
    """
    order = np.lexsort((scores, groups))
    scores, groups = scores[order], groups[order]
    wins = np.where(true[order], -1, 1)
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    last = np.append(first[1:], len(groups)) - 1
    won = np.cumsum(wins)
    group = np.repeat(np.arange(len(first)), last - first + 1)
    before = won - wins - (won - wins)[first][group]

    below = np.concatenate([[-np.inf], scores[:-1]])
    below[first] = -np.inf
    middle = np.where(below > -np.inf, (below + scores) / 2, np.minimum(prefer, scores))
    above_all = np.maximum(prefer, np.nextafter(scores[last], np.inf))

    cut = np.concatenate([middle, above_all])
    gain = np.concatenate([before, won[last] - (won - wins)[first]])
    owner = np.concatenate([group, np.arange(len(first))])
    possible = np.concatenate([below < scores, np.ones(len(first), dtype=bool)])
    cut, gain, owner = cut[possible], gain[possible], owner[possible]
    ranked = np.lexsort((cut, np.abs(cut - prefer), -gain, owner))
    best: _Floats = cut[ranked][np.flatnonzero(np.diff(owner[ranked], prepend=-1))]
    return best


def _finite(scores: npt.ArrayLike) -> _Floats:
    """Return scores as float64; one that is not a number is the lowest there is."""
    given = np.asarray(scores, dtype=np.float64)
    lowest, highest = float(_Limits.min), float(_Limits.max)
    return np.nan_to_num(given, nan=lowest, neginf=lowest, posinf=highest)
