"""The options of samplers, the registry they choose from, and presets of NSCaching.

With a preset NSCaching draws negatives as another sampler does (paper, ``tab:unified-view``):

====================  ===========  ================  ===========
..                    bernoulli    kbgan (Self-Adv)  igan
====================  ===========  ================  ===========
alpha1                0            0                 0
alpha2                0            above 0           above 0
alpha3                0            0                 any
N1, ``cache_size``    any          any               all
N2, ``candidates``    any          all               0
====================  ===========  ================  ===========

What is "any" keeps its default. A preset gives defaults: whatever is asked for besides it wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from nscaching.errors import UserError
from nscaching.options import OptionGroup, Options

if TYPE_CHECKING:
    from nscaching.sampling.base import Sampler

#: Samplers by name; ``nscaching.sampling`` fills it.
SAMPLERS: dict[str, type[Sampler]] = {}
#: Stands for the number of entities until the graph is known; see :func:`fitted`.
ALL = 2**31 - 1

PRESETS: dict[str, dict[str, float]] = {
    "bernoulli": {"alpha1": 0.0, "alpha2": 0.0, "alpha3": 0.0},
    "kbgan": {"alpha1": 0.0, "alpha2": 1.0, "alpha3": 0.0, "candidates": ALL},
    "igan": {"alpha1": 0.0, "alpha2": 1.0, "cache_size": ALL, "candidates": 0},
}

_sampler, _cache = OptionGroup("Sampler"), OptionGroup("NSCaching")
_generator = OptionGroup("Generator")


@dataclass(kw_only=True)
class CacheOptions(Options):
    """How a cache is sampled and updated, on knowledge graphs and in the skip-gram model alike."""

    cache_size: int = _cache(50, "N1: entities kept in each cache row; KBGAN's candidates.", low=1)
    candidates: int = _cache(
        50, "N2: fresh entities that a row is offered when it is updated.", low=0
    )
    alpha2: float = _cache(
        0.0,
        "Temperature of sampling a negative from its row; 0 is uniform, inf the hardest.",
        low=0,
        infinite=True,
    )
    alpha3: float = _cache(
        1.0,
        "Temperature of updating a row; 0 is uniform, inf keeps the hardest.",
        low=0,
        infinite=True,
    )
    rescale: str = _cache(
        "quantile",
        "Rescale scores between their 20th and 80th percentile before a temperature, or none.",
        choices=("quantile", "none"),
    )


@dataclass(kw_only=True)
class SamplerOptions(CacheOptions):
    """Where negatives come from."""

    sampler: str = _sampler("nscaching", "Negative sampler.", choices=SAMPLERS)
    negatives: int | None = _sampler(
        None, "Negatives per positive; default 1, and 16 for self-adversarial.", low=1
    )
    known_positives: str = _sampler(
        "exclude",
        "Keep training triples out of the negatives, or allow them (better on a few graphs).",
        choices=("exclude", "allow"),
    )
    preset: str | None = _cache(
        None,
        "Defaults of alpha1 to alpha3, N1 and N2 with which NSCaching acts as another sampler.",
        choices=PRESETS,
    )
    alpha1: float = _cache(0.0, "Temperature of sampling positives; 0 is a plain shuffle.", low=0)
    cache_memory: int = _cache(
        0,
        "Megabytes that the caches may take: beyond it pairs with few triples share rows; 0 is no "
        "bound.",
        low=0,
    )
    lazy: int = _cache(0, "n: epochs without an update between two with one.", low=0)
    pool: int = _sampler(
        0,
        "Uniform candidates that all questions of a batch share, scored by one matrix product, in "
        "place of those of each question; 0 draws for each question.",
        low=0,
    )
    int8: bool = _cache(
        True,
        "Score candidates for the cache from a copy of the entity table: int8 on a CPU, bfloat16 "
        "on a GPU.",
    )
    adversarial_temperature: float = _sampler(
        1.0, "Self-Adv: temperature of the weights of negatives.", low=0
    )
    generator_dim: int = _generator(100, "KBGAN, IGAN: dimension of the generator.", low=1)
    generator_lr: float = _generator(1e-3, "KBGAN, IGAN: learning rate of the generator.", above=0)
    generator_epochs: int | None = _generator(
        None,
        "KBGAN, IGAN: epochs of TransE that warm-start the generator; default pretrain_epochs.",
        low=0,
    )
    generator_memory: int = _generator(4096, "IGAN: megabytes its generator may take.", low=1)
    importance: bool = _cache(
        False,
        "With alpha1: weight a positive drawn with probability p by 1 / (n p), as the theory does.",
    )
    nu: float = _cache(
        0.0,
        "Draw negatives by score + nu times the running deviation of their score; needs alpha2.",
        low=0,
    )


OptionsT = TypeVar("OptionsT", bound=SamplerOptions)


def with_preset(given: Mapping[str, Any]) -> dict[str, Any]:
    """Put the values of the preset that options name below the options themselves."""
    preset = given.get("preset")
    values = PRESETS.get(preset, {}) if isinstance(preset, str) else {}
    return {**values, **given}


def fitted(options: OptionsT, num_entities: int) -> OptionsT:
    """Return options in which "all" has become the number of entities."""
    sizes = {name: getattr(options, name) for name in ("cache_size", "candidates")}
    known: dict[str, Any] = {name: num_entities for name, size in sizes.items() if size == ALL}
    return replace(options, **known) if known else options


def check_preset(options: SamplerOptions) -> None:
    """Refuse a preset for a sampler that it does not set."""
    if options.preset is not None and options.sampler != "nscaching":
        raise UserError(
            f"preset '{options.preset}' is a setting of the sampler nscaching, not of "
            f"{options.sampler}. Leave one of the two out."
        )
