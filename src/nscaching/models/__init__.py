"""Scoring functions, each written once as a query and a match. Add one here in one line."""

from __future__ import annotations

from dataclasses import dataclass

from nscaching.models.base import ScoringFunction
from nscaching.models.complex import ComplEx
from nscaching.models.distmult import DistMult
from nscaching.models.int8 import HalfTable, Int8Table
from nscaching.models.match import NO_VIEW, UNIT
from nscaching.models.matches import Distance
from nscaching.models.model import EmbeddingModel, Side
from nscaching.models.quate import QuatE
from nscaching.models.queries import BatchQueries
from nscaching.models.rotate import RotatE
from nscaching.models.simple import SimplE
from nscaching.models.transd import TransD
from nscaching.models.transe import TransE
from nscaching.models.transh import TransH
from nscaching.options import Options, option

SCORING: dict[str, type[ScoringFunction]] = {
    function.name: function
    for function in (TransE, TransH, TransD, DistMult, ComplEx, SimplE, RotatE, QuatE)
}


@dataclass(kw_only=True)
class ScoringOptions(Options):
    """What is trained."""

    scoring: str = option(
        "simple",
        "Scoring function of a triple.",
        group="Model",
        choices=SCORING,
    )
    dim: int = option(100, "Dimension d of the embedding.", group="Model", low=1)
    norm: int = option(
        1, "The p of the distance in TransE, TransH and TransD.", group="Model", low=1, high=2
    )
    normalize: bool = option(
        True,
        "Normalise entity vectors in TransE; turn it off with the softmax loss and with Self-Adv.",
        group="Model",
    )
    reciprocal: bool = option(
        False,
        "Reciprocal relations: a second row per relation answers the questions for heads.",
        group="Model",
    )

    def build_scoring(self) -> ScoringFunction:
        """Return the scoring function these options describe."""
        scoring = SCORING[self.scoring](self.dim, self.norm)
        if not self.normalize and scoring.match.view_kind == UNIT:
            scoring.match = Distance(self.norm, NO_VIEW)
        return scoring

    def table_shapes(self, num_entities: int, num_relations: int) -> dict[str, tuple[int, int]]:
        """Return the shapes of the tables of a model."""
        scoring = self.build_scoring()
        rows = num_relations * (2 if self.reciprocal else 1)
        return {
            "entity": (num_entities, scoring.entity_width),
            "relation": (rows, scoring.relation_width),
        }


__all__ = [
    "SCORING",
    "BatchQueries",
    "EmbeddingModel",
    "HalfTable",
    "Int8Table",
    "ScoringFunction",
    "ScoringOptions",
    "Side",
]
