"""Settings with which NSCaching draws negatives as other samplers do (paper, ``tab:unified-view``).

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

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from nscaching.errors import UserError

if TYPE_CHECKING:
    from nscaching.sampling.options import SamplerOptions

OptionsT = TypeVar("OptionsT", bound="SamplerOptions")

#: Stands for the number of entities until the graph is known; see :func:`fitted`.
ALL = 2**31 - 1

PRESETS: dict[str, dict[str, float]] = {
    "bernoulli": {"alpha1": 0.0, "alpha2": 0.0, "alpha3": 0.0},
    "kbgan": {"alpha1": 0.0, "alpha2": 1.0, "alpha3": 0.0, "candidates": ALL},
    "igan": {"alpha1": 0.0, "alpha2": 1.0, "cache_size": ALL, "candidates": 0},
}


def with_preset(given: Mapping[str, Any]) -> dict[str, Any]:
    """Put the values of the preset that options name below the options themselves."""
    preset = given.get("preset")
    values = PRESETS.get(preset, {}) if isinstance(preset, str) else {}
    return {**values, **given}


def fitted(options: OptionsT, num_entities: int) -> OptionsT:
    """Return options in which "all" has become the number of entities."""
    sizes = {name: getattr(options, name) for name in ("cache_size", "candidates")}
    known: dict[str, Any] = {name: num_entities for name, size in sizes.items() if size == ALL}
    return dataclasses.replace(options, **known) if known else options


def check_preset(options: SamplerOptions) -> None:
    """Refuse a preset for a sampler that it does not set."""
    if options.preset is not None and options.sampler != "nscaching":
        raise UserError(
            f"preset '{options.preset}' is a setting of the sampler nscaching, not of "
            f"{options.sampler}. Leave one of the two out."
        )
