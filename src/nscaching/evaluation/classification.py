"""Triplet classification: is a triple true? Decided by one threshold per relation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from nscaching.artefacts.showing import frame, html_table
from nscaching.errors import UserError
from nscaching.evaluation.negatives import Drawing, seeded_negatives
from nscaching.evaluation.thresholds import Thresholds, fit_thresholds
from nscaching.graph import KnowledgeGraph
from nscaching.models import EmbeddingModel

#: Triples scored at once, so that a large file needs no large memory.
_BLOCK = 1 << 15


class Verdicts(NamedTuple):
    """Whether each triple is true by its threshold, and by how much."""

    labels: npt.NDArray[np.bool_]  #: (n,)
    margins: npt.NDArray[np.float64]  #: (n,) score minus threshold; true from 0 on


@dataclass(frozen=True)
class LabelledTriples:
    """Facts and negatives of a split."""

    triples: npt.NDArray[np.int32]  #: (n, 3)
    true: npt.NDArray[np.bool_]  #: (n,)
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
        parts = {name: part.as_dict() for name, part in self.per_relation.items()}
        accuracy = self.accuracy if self.count else None
        return {
            **self.__dict__,
            "accuracy": accuracy,
            "per_relation": parts,
            "notes": list(self.notes),
        }


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
            f"{drawn.out_of_place:,} negatives of {split} have an entity that never occurs on that "
            "side of the relation: all that do would make known facts."
        )
    if drawn.missing:
        notes.append(
            f"{drawn.missing:,} facts of {split} have no negative: every other entity would make a "
            "known fact."
        )
    return LabelledTriples(
        np.concatenate([facts, drawn.triples]),
        np.repeat([True, False], [len(facts), len(drawn.triples)]),
        seeded=True,
        notes=tuple(notes),
    )


@torch.no_grad()
def score_triples(model: EmbeddingModel, triples: npt.NDArray[np.integer]) -> np.ndarray:
    """Score triples of ids: higher is more plausible. Shapes: (n, 3) -> (n,)."""
    scores = np.empty(len(triples), dtype=np.float32)
    for start in range(0, len(triples), _BLOCK):
        block = torch.from_numpy(np.ascontiguousarray(triples[start : start + _BLOCK].T))
        heads, relations, tails = block.to(model.device).long()
        scores[start : start + _BLOCK] = model.score(heads, relations, tails).cpu().numpy()
    return scores


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
            f"The graph '{graph.name}' has no valid triples, and the thresholds come from them; "
            "train on data with a valid split, or on a single file with --split above 0."
        )
    triples, true = valid.triples, valid.true
    if any_type and valid.seeded:
        from nscaching.evaluation.calibration import claims_of

        seed = drawing.seed if drawing is not None else 0
        made, _, of_any_type = claims_of(graph, graph.valid, seed=seed)
        triples = np.concatenate([triples, made[of_any_type].astype(triples.dtype)])
        true = np.concatenate([true, np.zeros(int(of_any_type.sum()), dtype=bool)])
    scores = score_triples(model, triples)
    return fit_thresholds(scores, triples[:, 1], true, graph.num_relations)


def classify_triples(
    model: EmbeddingModel, thresholds: Thresholds, triples: npt.NDArray[np.integer]
) -> Verdicts:
    """Say of triples of ids whether each is true. Shape: (n, 3)."""
    margins = thresholds.margins(score_triples(model, triples), triples[:, 1])
    return Verdicts(margins >= 0, margins)


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
            f"{shared:,} of {int((counts > 0).sum()):,} relations have no triple in valid; they "
            "use the best single threshold of all relations."
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
