"""What is compared: a sampler, with options of its own where it has some.

In text a variant is ``sampler`` or ``sampler:option=value:option=value``, so that one sampler can
stand in several rows of a table: ``nscaching``, ``nscaching:alpha3=5``, ``nscaching:preset=igan``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from nscaching.errors import UserError, nearest_names
from nscaching.sampling import SAMPLERS

#: What all variants share: the graph and the seeds.
_COMMON = ("data", "split", "seed")


@dataclass(frozen=True)
class Variant:
    """One row of the comparison."""

    label: str
    options: dict[str, Any]  #: the sampler, and what differs from the common options

    def folder(self, seed: int) -> str:
        """Return the name of the run folder of one seed."""
        return f"{re.sub(r'[^A-Za-z0-9=.+_-]+', '-', self.label)}-seed{seed}"


def read_variants(given: str | Sequence[str | Mapping[str, Any]]) -> list[Variant]:
    """Read variants from text with commas between them, or from a list of texts or mappings.

    A mapping names its ``sampler`` and the options of its own.
    """
    items: Sequence[str | Mapping[str, Any]] = [given] if isinstance(given, str) else given
    texts: list[str | Mapping[str, Any]] = []
    for item in items:
        texts += [part for part in item.split(",") if part] if isinstance(item, str) else [item]
    variants = [_variant(text) for text in texts]
    if not variants:
        raise UserError(f"Name at least one sampler to compare; there are: {', '.join(SAMPLERS)}.")
    folders = [variant.folder(0) for variant in variants]
    for place, variant in enumerate(variants):
        if variant.folder(0) in folders[:place]:
            raise UserError(f"samplers: '{variant.label}' stands there twice; drop one.")
    return variants


def _variant(given: str | Mapping[str, Any]) -> Variant:
    if isinstance(given, Mapping):
        options = dict(given)
        name = str(options.pop("sampler", ""))
    else:
        name, *parts = (part.strip() for part in given.split(":"))
        options = dict(_option(given, part) for part in parts)
    if name not in SAMPLERS:
        hint = nearest_names(name, SAMPLERS) or f". The samplers are: {', '.join(SAMPLERS)}."
        raise UserError(f"samplers: unknown sampler '{name}'{hint}")
    for option in (*_COMMON, "sampler"):
        if option in options:
            raise UserError(
                f"samplers: {option} is the same for all that are compared; take it out of "
                f"'{name}:{option}={options[option]}'."
            )
    label = ":".join([name, *(f"{option}={value}" for option, value in options.items())])
    return Variant(label, {"sampler": name, **options})


def _option(whole: str, part: str) -> tuple[str, Any]:
    name, equals, value = part.partition("=")
    if not (name and equals and value):
        raise UserError(
            f"samplers: '{part}' in '{whole}' is not option=value; write "
            "sampler:option=value:option=value."
        )
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        read = value
    return name.strip().replace("-", "_"), read
