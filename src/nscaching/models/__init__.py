"""Scoring functions, each written once as a query and a match. Add one here in one line."""

from __future__ import annotations

from dataclasses import dataclass

from nscaching.models.base import ScoringFunction
from nscaching.models.compact import CompactTable
from nscaching.models.complex import ComplEx
from nscaching.models.distmult import DistMult
from nscaching.models.model import ByteTables, EmbeddingModel, Side
from nscaching.models.rotate import RotatE
from nscaching.models.simple import SimplE
from nscaching.models.transd import TransD
from nscaching.models.transe import TransE
from nscaching.models.transh import TransH
from nscaching.options import Options, option

SCORING: dict[str, type[ScoringFunction]] = {
    function.name: function
    for function in (TransE, TransH, TransD, DistMult, ComplEx, SimplE, RotatE)
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

    def build_scoring(self) -> ScoringFunction:
        """Return the scoring function these options describe."""
        return SCORING[self.scoring](self.dim, self.norm)


__all__ = [
    "SCORING",
    "ByteTables",
    "CompactTable",
    "EmbeddingModel",
    "ScoringFunction",
    "ScoringOptions",
    "Side",
]
