"""What a run believes: probabilities, and what people rejected."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nscaching.artefacts.files import read_json, sealed, unsealed, write_text
from nscaching.errors import UserError
from nscaching.evaluation.calibration import (
    Calibration,
    CalibrationReport,
    calibration_report,
    fit_calibration,
)
from nscaching.evaluation.regression import expit, logit
from nscaching.graph import KnowledgeGraph, read_triples
from nscaching.graph.names import REJECTED, SPLITS, Floats, Longs
from nscaching.models import EmbeddingModel
from nscaching.runs.asking import Asker
from nscaching.runs.predictions import (
    History,
    Named,
    Reference,
    Triples,
    rows_of,
    several,
    triple_of,
)
from nscaching.training import RunFolder, TrainConfig

#: Valid facts of a relation below which its probabilities are remarked on, and relations named.
_FEW_FACTS, _LISTED = 10, 5


class Learning:
    """The part of :class:`nscaching.Run` that has probabilities, and what the other parts share."""

    config: TrainConfig
    graph: KnowledgeGraph
    model: EmbeddingModel
    folder: RunFolder | None

    #: What is recorded of a run without a folder.
    _lines: Sequence[dict[str, Any]] = ()

    @cached_property
    def calibration(self) -> Calibration | None:
        """What turns scores into probabilities; fitted on valid once, and kept in the folder.

        None where the graph has no valid triples.
        """
        if len(self.graph.valid) == 0:
            return None
        path = None if self.folder is None else self.folder.calibration
        if path is not None and path.is_file():
            try:
                given = unsealed(read_json(path)) or {}
                return Calibration.from_dict(given, self.model, self.graph.num_relations)
            except (ValueError, OverflowError):  # a UserError is a ValueError
                pass  # it can be made again
        fitted = fit_calibration(self.model, self.graph, memory_mb=self.config.eval_memory)
        # What is kept is what is used: a run read back gives the same probabilities.
        plain = json.loads(json.dumps(fitted.as_dict()))
        if path is not None and path.parent.is_dir():
            # A folder that cannot be written to can be asked all the same.
            with contextlib.suppress(UserError):
                write_text(path, json.dumps(sealed(plain)) + "\n")
        return Calibration.from_dict(plain, self.model, self.graph.num_relations)

    def probabilities(self, triples: Triples, *, prior: float = 0.5) -> Floats:
        """Return the probability that each claim is true. Shape: (n,).

        A claim is a triple that somebody states. This is not the probability of an answer
        (:meth:`predict_tails`, :meth:`discover`): those are picked from thousands of candidates,
        nearly all of which are false. Claims are judged by all facts that the run knows, those of
        test included; with the default prior, one that contradicts a fact is at most as probable
        as :meth:`judge` says. :meth:`calibration_report` says how good probabilities are.

        Args:
            triples: A list of (head, relation, tail), or a data frame of names.
            prior: The probability that a claim is true before it is looked at; a false one has
                either an entity of the right type or any.

        Returns:
            Probabilities; shape: (n,).

        Examples:
            >>> chances = run.probabilities([("France", "speaks", "French")], prior=0.2)

        """
        if not 0 < prior < 1:
            raise UserError(f"prior must be above 0 and below 1, not {prior}.")
        if self.calibration is None:
            raise UserError(
                f"The graph '{self.graph.name}' has no valid triples, and probabilities come from "
                "them; train on data with a valid split."
            )
        return expit(self._asker.claims(self._triples(triples)) + logit(prior))

    def calibration_report(self, split: str = "test", *, seed: int = 0) -> CalibrationReport:
        """Compare the probabilities of a split's facts and negatives with how many are true.

        Each fact stands beside a negative of the right type and one of any type.

        Args:
            split: ``"test"`` or ``"valid"``.
            seed: Decides the negatives.

        Returns:
            Expected calibration error, Brier score and the bins of the reliability diagram.

        """
        facts = self.graph.split(split)
        if len(facts) == 0 or self.calibration is None:
            raise UserError(
                f"A calibration report needs valid triples and triples of {split}; the graph "
                f"'{self.graph.name}' lacks them."
            )
        return calibration_report(self._asker.evidence, self.calibration, split=split, seed=seed)

    @property
    def assumption(self) -> str | None:
        """A sentence on what probabilities of answers assume; None where there are none."""
        facts = len(self.graph.valid)
        if facts == 0:
            return None
        share = facts / sum(len(self.graph.split(split)) for split in SPLITS)
        return (
            f"Probabilities assume that the graph lacks as many facts as valid holds: {facts:,}, "
            f"{share:.1%} of those it has."
        )

    def few_facts(self, relations: Iterable[str]) -> str | None:
        """Return a sentence on which of these relations have few valid facts of their own."""
        counts = np.bincount(self.graph.valid[:, 1], minlength=self.graph.num_relations)
        numbers = {name: int(counts[self.graph.relation_ids[name]]) for name in relations}
        few = [f"'{name}' ({count})" for name, count in numbers.items() if count < _FEW_FACTS]
        if not few:
            return None
        listed = ", ".join(few[:_LISTED]) + (", ..." if len(few) > _LISTED else "")
        whose = "its" if len(few) == 1 else "their"
        return f"Few valid facts of {listed}: {whose} probabilities lean on other relations."

    @property
    def fits_when_asked(self) -> bool:
        """Whether the first question will fit the probabilities, which takes its time."""
        kept = self.folder is not None and self.folder.calibration.is_file()
        return not ("calibration" in vars(self) or kept or len(self.graph.valid) == 0)

    @cached_property
    def rejected(self) -> frozenset[Named]:
        """Facts that were rejected: never offered again. See :meth:`update`."""
        if REJECTED in self.graph.labelled:
            triples = self.graph.labelled[REJECTED][:, :3].tolist()
            return frozenset(map(self.graph.named, triples))
        path = None if self.folder is None else self.folder.rejected
        rows = read_triples(path) if path is not None and path.is_file() else []  # of 0.1.0
        return frozenset((h, r, t) for h, r, t in rows)

    @property
    def rejected_ids(self) -> Longs:
        """The ids of rejected facts whose names the graph has, (n, 3), in the order of names."""
        entities, relations = self.graph.entity_ids, self.graph.relation_ids
        known = [
            (entities[h], relations[r], entities[t])
            for h, r, t in sorted(self.rejected)
            if h in entities and r in relations and t in entities
        ]
        return np.array(known, dtype=np.int64).reshape(-1, 3)

    @property
    def history(self) -> History:
        """The metrics of training: one line per epoch and per evaluation."""
        return History(self.folder.read_metrics() if self.folder is not None else self._lines)

    @cached_property
    def _asker(self) -> Asker:
        memory = self.config.eval_memory
        return Asker(self.model, self.graph, self.calibration, self.rejected_ids, memory)

    def _triples(self, triples: Triples) -> Longs:
        """Return triples of names or ids as ids, (n, 3); of an array each id is checked once."""
        if isinstance(triples, np.ndarray) and triples.dtype.kind in "iu" and triples.ndim == 2:
            graph = self.graph
            finds = graph.entity_id, graph.relation_id, graph.entity_id
            if triples.shape[1] == len(finds):
                for column, find in zip(triples.T, finds, strict=True):
                    for each in np.unique(column).tolist():
                        find(each)
                return triples.astype(np.int64)
        ids = [triple_of(self.graph, triple) for triple in rows_of(triples)]
        return np.array(ids, dtype=np.int64).reshape(-1, 3)

    def _entities(self, names: Reference | Iterable[Reference]) -> Longs:
        return np.array([self.graph.entity_id(name) for name in several(names)], dtype=np.int64)
