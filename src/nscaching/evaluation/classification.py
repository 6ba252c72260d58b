"""Triplet classification: is a triple true? Decided by one threshold per relation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.artefacts.showing import frame, html_table
from nscaching.errors import HOLD_OUT, UserError, plural
from nscaching.evaluation.negatives import Drawing, claims_of, seeded_negatives
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import Bools, Floats, Ids, Integers
from nscaching.models import EmbeddingModel

_Limits = np.finfo(np.float32)


@dataclass(frozen=True)
class Thresholds:
    """One threshold per relation; a triple is taken as true from its threshold on."""

    values: Floats  #: (relations,), ``overall`` for a relation that had nothing to learn from
    own: Bools  #: (relations,), whether the relation has a threshold of its own
    overall: float  #: the best single threshold for all relations

    def margins(self, scores: npt.ArrayLike, relations: Integers) -> Floats:
        """Return how far each score is above the threshold of its relation; from 0 on: true."""
        above: Floats = _finite(scores) - self.values[relations]
        return above


def fit_thresholds(
    scores: npt.ArrayLike, relations: Integers, true: Bools, num_relations: int
) -> Thresholds:
    """Return the thresholds of highest accuracy on labelled triples. Shapes: (n,) three times.

    The optimum is exact: every cut between two different scores is compared. The threshold is
    the middle of its cut. Of equally good cuts a relation takes the one nearest to the best
    threshold overall, which so decides where the relation's own triples do not.
    """
    finite = _finite(scores)
    if len(finite) == 0:
        raise ValueError("thresholds need at least one labelled triple")
    order = np.argsort(finite, kind="stable")
    one_group = np.zeros(len(finite), dtype=np.int64)
    overall = float(_best_cuts(finite[order], one_group, true[order], float(np.median(finite)))[0])
    values = np.full(num_relations, overall)
    own = np.bincount(relations, minlength=num_relations) > 0
    groups = relations[order]
    short = num_relations <= 1 << 16  # NumPy sorts 16 bits in one pass
    order = order[np.argsort(groups.astype(np.uint16) if short else groups, kind="stable")]
    values[own] = _best_cuts(finite[order], relations[order], true[order], overall)
    return Thresholds(values, own, overall)


def _best_cuts(scores: Floats, groups: Integers, true: Bools, prefer: float) -> Floats:
    """Return the best threshold of each group that occurs, in the order of the groups.

    Triples are sorted by group, then by score. Shapes: (n,) three times -> (groups that occur,).
    There is a cut before each triple of a group in the order of scores, and one after the last.
    With all of the group taken as true, moving the cut over a triple wins one where it is false and
    loses one where it is true.
    """
    wins = np.where(true, -1, 1)
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
    inner = np.where(possible[: len(before)], before, np.iinfo(before.dtype).min)
    most = np.maximum(np.maximum.reduceat(inner, first), gain[len(before) :])
    possible &= gain == most[owner]
    cut, owner = cut[possible], owner[possible]
    ranked = np.lexsort((cut, np.abs(cut - prefer), owner))
    best: Floats = cut[ranked][np.flatnonzero(np.diff(owner[ranked], prepend=-1))]
    return best


def _finite(scores: npt.ArrayLike) -> Floats:
    """Return scores as float64; one that is not a number is the lowest there is."""
    given = np.asarray(scores, dtype=np.float64)
    lowest, highest = float(_Limits.min), float(_Limits.max)
    return np.nan_to_num(given, nan=lowest, neginf=lowest, posinf=highest)


#: Triples scored at once, so that a large file needs no large memory.
_BLOCK = 1 << 15


class Decided(NamedTuple):
    """Whether each triple is true by its threshold, and by how much."""

    labels: Bools  #: (n,)
    margins: Floats  #: (n,) score minus threshold; true from 0 on


@dataclass(frozen=True)
class LabelledTriples:
    """Facts and negatives of a split."""

    triples: Ids  #: (n, 3)
    true: Bools  #: (n,)
    seeded: bool  #: whether the negatives were drawn, and are not the data set's own
    notes: tuple[str, ...] = ()  #: sentences on negatives that break the rule


@dataclass(frozen=True)
class RelationAccuracy:
    """How well facts and negatives of one relation are told apart."""

    accuracy: float
    count: int  #: triples, facts and negatives together
    threshold: float
    own_threshold: bool  #: False: valid has no triple of the relation, the overall one is used

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class ClassificationReport:
    """Accuracy on the facts and negatives of a split, overall and per relation."""

    accuracy: float  #: NaN for no triple
    count: int  #: triples, facts and negatives together
    facts: int
    split: str
    negatives: str  #: ``"data set"`` or ``"seeded"``
    seed: int  #: of seeded negatives
    replaced: str  #: the side that seeded negatives replace
    threshold: float  #: the best one for all relations together
    per_relation: dict[str, RelationAccuracy]
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_frame(self) -> Any:
        """Return a pandas data frame, one row per relation."""
        return frame(self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        return [{"relation": name, **part.as_dict()} for name, part in self.per_relation.items()]

    def __repr__(self) -> str:
        return (
            f"<ClassificationReport of {self.split}: accuracy {self.accuracy:.4f}, "
            f"{self.count:,} triples>"
        )

    def _repr_html_(self) -> str:
        columns = ("relation", "accuracy", "count", "threshold", "own_threshold")
        return html_table(self._rows(), columns)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, parts included; NaN becomes None."""
        accuracy = self.accuracy if self.count else None
        return {**asdict(self), "accuracy": accuracy, "notes": list(self.notes)}


def labelled_triples(
    graph: KnowledgeGraph, split: str, drawing: Drawing | None = None
) -> LabelledTriples:
    """Return the labelled triples of a split: the data set's, else each fact and one negative."""
    facts = graph.split(split)
    if split in graph.labelled:
        rows = graph.labelled[split]
        return LabelledTriples(rows[:, :3], rows[:, 3] == 1, seeded=False)
    drawn = seeded_negatives(graph, split, drawing)
    notes = []
    if drawn.out_of_place:
        notes.append(
            f"{_told(drawn.out_of_place, 'negative', split)} an entity that never occurs on that "
            "side of the relation: all that do would make known facts."
        )
    if drawn.missing:
        notes.append(
            f"{_told(drawn.missing, 'fact', split)} no negative: every other entity would make a "
            "known fact."
        )
    return LabelledTriples(
        np.concatenate([facts, drawn.triples]),
        np.repeat([True, False], [len(facts), len(drawn.triples)]),
        seeded=True,
        notes=tuple(notes),
    )


def _told(count: int, noun: str, split: str) -> str:
    """Return the beginning of a sentence on what some triples of a split have."""
    return plural(count, f"{noun} of {split} has", f"{noun}s of {split} have")


@torch.no_grad()
def score_triples(model: EmbeddingModel, triples: Integers | Tensor) -> np.ndarray:
    """Score triples of ids: higher is more plausible. Shapes: (n, 3) -> (n,).

    A tensor of them may be on the device of the model already; a GPU is waited for once.
    """
    scores = torch.empty(len(triples), device=model.device)
    for start in range(0, len(triples), _BLOCK):
        block = triples[start : start + _BLOCK]
        if not isinstance(block, Tensor):
            block = torch.from_numpy(np.array(block))  # mapped ones must not be written to
        heads, relations, tails = block.to(model.device).long().unbind(1)
        scores[start : start + _BLOCK] = model.score(heads, relations, tails)
    return np.asarray(scores.cpu().numpy())


def learn_thresholds(
    model: EmbeddingModel,
    graph: KnowledgeGraph,
    drawing: Drawing | None = None,
    *,
    any_type: bool = False,
) -> Thresholds:
    """Return the thresholds of highest accuracy on the valid split.

    With ``any_type`` drawn negatives are of two kinds, half of them with any entity in place of
    one of the right type, as claims from outside may be.
    """
    valid = labelled_triples(graph, "valid", drawing)
    if len(valid.triples) == 0:
        raise UserError(
            f"The graph '{graph.name}' has no valid triples, and the thresholds come from them. "
            f"{HOLD_OUT}"
        )
    triples, true = valid.triples, valid.true
    if any_type and valid.seeded:
        seed = drawing.seed if drawing is not None else 0
        made, _, of_any_type = claims_of(graph, graph.valid, seed=seed)
        triples = np.concatenate([triples, made[of_any_type].astype(triples.dtype)])
        true = np.concatenate([true, np.zeros(int(of_any_type.sum()), dtype=bool)])
    scores = score_triples(model, triples)
    return fit_thresholds(scores, triples[:, 1], true, graph.num_relations)


def best_accuracy(
    model: EmbeddingModel, given: LabelledTriples, num_relations: int, at: Tensor | None = None
) -> float:
    """Return the accuracy on triples with the thresholds that are best for the same triples.

    ``at`` are the triples where the model is, if they are there already.
    """
    relations = given.triples[:, 1]
    scores = score_triples(model, given.triples if at is None else at)
    thresholds = fit_thresholds(scores, relations, given.true, num_relations)
    return float(((thresholds.margins(scores, relations) >= 0) == given.true).mean())


def classify_triples(model: EmbeddingModel, thresholds: Thresholds, triples: Integers) -> Decided:
    """Say of triples of ids whether each is true. Shape: (n, 3)."""
    margins = thresholds.margins(score_triples(model, triples), triples[:, 1])
    return Decided(margins >= 0, margins)


def classification_report(
    model: EmbeddingModel,
    graph: KnowledgeGraph,
    thresholds: Thresholds,
    split: str,
    drawing: Drawing,
) -> ClassificationReport:
    """Classify the facts and negatives of a split; relations without a triple are omitted."""
    given = labelled_triples(graph, split, drawing)
    relations = given.triples[:, 1]
    right = classify_triples(model, thresholds, given.triples).labels == given.true
    counts = np.bincount(relations, minlength=graph.num_relations)
    hits = np.bincount(relations, weights=right, minlength=graph.num_relations)
    notes = list(given.notes)
    shared = int(((counts > 0) & ~thresholds.own).sum())
    if shared:
        notes.append(
            f"No triple in valid: {shared:,} of {plural(int((counts > 0).sum()), 'relation')} (*). "
            "There the best single threshold of all relations is used."
        )
    return ClassificationReport(
        accuracy=float(right.mean()) if len(right) else float("nan"),
        count=len(right),
        facts=int(given.true.sum()),
        split=split,
        negatives="seeded" if given.seeded else "data set",
        seed=drawing.seed,
        replaced=drawing.replaced,
        threshold=thresholds.overall,
        per_relation={
            graph.relations[r]: RelationAccuracy(
                accuracy=float(hits[r] / counts[r]),
                count=int(counts[r]),
                threshold=float(thresholds.values[r]),
                own_threshold=bool(thresholds.own[r]),
            )
            for r in np.flatnonzero(counts).tolist()
        },
        notes=tuple(notes),
    )
