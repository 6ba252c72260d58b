"""Scoring functions, each written once as a query and a match. Add one here in one line."""

from __future__ import annotations

from dataclasses import dataclass

from nscaching.models.base import ScoringFunction
from nscaching.models.complex import ComplEx
from nscaching.models.distmult import DistMult
from nscaching.models.int8 import HalfTable, Int8Table
from nscaching.models.model import EmbeddingModel, Side
from nscaching.models.quate import QuatE
from nscaching.models.queries import BatchQueries
from nscaching.models.rotate import RotatE
from nscaching.models.simple import SimplE
from nscaching.models.transd import TransD
from nscaching.models.transe import TransE
from nscaching.models.transh import TransH
from nscaching.options import OptionGroup, Options

SCORING: dict[str, type[ScoringFunction]] = {
    function.name: function
    for function in (TransE, TransH, TransD, DistMult, ComplEx, SimplE, RotatE, QuatE)
}

_model = OptionGroup("Model")


@dataclass(kw_only=True)
class ScoringOptions(Options):
    """What is trained."""

    scoring: str = _model("simple", "Scoring function of a triple.", choices=SCORING)
    dim: int = _model(100, "Dimension d of the embedding.", low=1)
    norm: int = _model(1, "The p of the distance in TransE, TransH and TransD.", low=1, high=2)
    normalize: bool = _model(
        True,
        "Normalise entity vectors in TransE and relations in QuatE; turn it off in TransE with the "
        "softmax loss and with Self-Adv, in QuatE where relations should have a length.",
    )
    reciprocal: bool = _model(
        False, "Reciprocal relations: a second row per relation answers the questions for heads."
    )

    def build_scoring(self) -> ScoringFunction:
        """Return the scoring function these options describe."""
        return SCORING[self.scoring](self.dim, self.norm, self.normalize)

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
