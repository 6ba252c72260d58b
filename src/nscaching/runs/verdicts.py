"""What a run says of claims, triples that somebody states: labels, margins and all else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from nscaching.artefacts.showing import frame
from nscaching.evaluation.classification import Decided
from nscaching.graph.names import Bools
from nscaching.runs.predictions import Predictions


class Verdicts(Decided):
    """Labels and margins of claims: ``labels, margins = run.classify(triples)``.

    All else is worked out when it is first asked for.
    """

    _judge: Callable[[], Predictions]

    @classmethod
    def of(cls, decided: Decided, judge: Callable[[], Predictions]) -> Verdicts:
        """Return verdicts whose claims are judged when they are asked for."""
        made = cls(*decided)
        made._judge = judge
        return made

    @cached_property
    def claims(self) -> Predictions:
        """Each claim with its probability as a claim, its split if it is a fact, and its flags."""
        return self._judge()

    @cached_property
    def undecided(self) -> Bools:
        """Whether label and probability, which come from two methods, disagree; (n,).

        Without valid facts there is no probability, and nothing is undecided.
        """
        chances = np.array([claim.probability for claim in self.claims], dtype=np.float64)
        disagree: Bools = np.not_equal(self.labels, chances >= 0.5)
        return disagree & ~np.isnan(chances)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return every verdict as plain values."""
        return self._with_labels(self.claims.as_dicts())

    def to_frame(self) -> Any:
        """Return a pandas data frame, one row per claim."""
        return frame(self._with_labels(self.claims.rows()))

    def _with_labels(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        parts = (self.labels.tolist(), self.margins.tolist(), self.undecided.tolist())
        names = ("label", "margin", "undecided")
        said = (dict(zip(names, values, strict=True)) for values in zip(*parts, strict=True))
        return [{**row, **more} for row, more in zip(rows, said, strict=True)]
