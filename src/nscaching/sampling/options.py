"""The options of samplers, and the registry they choose from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nscaching.options import Options, option
from nscaching.sampling.presets import PRESETS

if TYPE_CHECKING:
    from nscaching.sampling.base import Sampler

#: Samplers by name; ``nscaching.sampling`` fills it.
SAMPLERS: dict[str, type[Sampler]] = {}


@dataclass(kw_only=True)
class CacheOptions(Options):
    """How a cache is sampled and updated, on knowledge graphs and in the skip-gram model alike."""

    cache_size: int = option(
        50,
        "N1: entities kept in each cache row; KBGAN's candidates.",
        group="NSCaching",
        low=1,
    )
    candidates: int = option(
        50, "N2: fresh entities that a row is offered when it is updated.", group="NSCaching", low=0
    )
    alpha2: float = option(
        0.0,
        "Temperature of sampling a negative from its row; 0 is uniform, inf the hardest.",
        group="NSCaching",
        low=0,
        infinite=True,
    )
    alpha3: float = option(
        1.0,
        "Temperature of updating a row; 0 is uniform, inf keeps the hardest.",
        group="NSCaching",
        low=0,
        infinite=True,
    )
    rescale: str = option(
        "quantile",
        "Rescale scores between their 20th and 80th percentile before a temperature, or none.",
        group="NSCaching",
        choices=("quantile", "none"),
    )


@dataclass(kw_only=True)
class SamplerOptions(CacheOptions):
    """Where negatives come from."""

    sampler: str = option(
        "nscaching",
        "Negative sampler.",
        group="Sampler",
        choices=SAMPLERS,
    )
    negatives: int | None = option(
        None,
        "Negatives per positive; default 1, and 16 for self-adversarial.",
        group="Sampler",
        low=1,
    )
    known_positives: str = option(
        "exclude",
        "Keep training triples out of the negatives, or allow them (better on a few graphs).",
        group="Sampler",
        choices=("exclude", "allow"),
    )
    preset: str | None = option(
        None,
        "Defaults of alpha1 to alpha3, N1 and N2 with which NSCaching acts as another sampler.",
        group="NSCaching",
        choices=PRESETS,
    )
    alpha1: float = option(
        0.0,
        "Temperature of sampling positives; 0 is a plain shuffle.",
        group="NSCaching",
        low=0,
    )
    cache_memory: int = option(
        0,
        "Megabytes that the caches may take: beyond it pairs with few triples share rows; 0 is no "
        "bound.",
        group="NSCaching",
        low=0,
    )
    lazy: int = option(
        0, "n: epochs without an update between two with one.", group="NSCaching", low=0
    )
    pool: int = option(
        0,
        "Uniform candidates that all questions of a batch share, scored by one matrix product, in "
        "place of those of each question; 0 draws for each question.",
        group="Sampler",
        low=0,
    )
    int8: bool = option(
        True,
        "Score candidates for the cache from a copy of the entity table: int8 on a CPU, bfloat16 "
        "on a GPU.",
        group="NSCaching",
    )
    adversarial_temperature: float = option(
        1.0, "Self-Adv: temperature of the weights of negatives.", group="Sampler", low=0
    )
    generator_dim: int = option(
        100, "KBGAN, IGAN: dimension of the generator.", group="Generator", low=1
    )
    generator_lr: float = option(
        1e-3, "KBGAN, IGAN: learning rate of the generator.", group="Generator", above=0
    )
    generator_epochs: int | None = option(
        None,
        "KBGAN, IGAN: epochs of TransE that warm-start the generator; default pretrain_epochs.",
        group="Generator",
        low=0,
    )
    generator_memory: int = option(
        4096, "IGAN: megabytes its generator may take.", group="Generator", low=1
    )
    importance: bool = option(
        False,
        "With alpha1: weight a positive drawn with probability p by 1 / (n p), as the theory does.",
        group="NSCaching",
    )
    nu: float = option(
        0.0,
        "Draw negatives by score + nu times the running deviation of their score; needs alpha2.",
        group="NSCaching",
        low=0,
    )
