"""The state of a run as its checkpoint has it: what all processes share, and a part per stratum.

The part of a stratum does not depend on who owns it, so that a run resumes with any number of
processes that divides the strata.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nscaching.distributed.shards import Shards

#: Groups of named tensors: model, best, adam, sampler, random, epoch.
Parts = dict[str, dict[str, Tensor]]
#: What the tensors that have a row per entity are called, alone or before a dot.
_ENTITY = "entity"


def split(shards: Shards, parts: Parts) -> tuple[Parts, dict[int, Parts]]:
    """Cut the state of a process into what is shared and its strata; nothing is copied."""
    shared: Parts = {}
    strata: dict[int, Parts] = {number: {} for number in shards.own}
    for group, tensors in parts.items():
        for name, tensor in tensors.items():
            number, _, rest = name.partition(".")
            if group == "sampler" and number.isdigit():
                strata[int(number)].setdefault(group, {})[rest] = tensor
            elif number == _ENTITY:
                for each, part in strata.items():
                    part.setdefault(group, {})[name] = tensor[shards.rows(each)]
            else:
                shared.setdefault(group, {})[name] = tensor
    return shared, strata


def join(shards: Shards, shared: Parts, strata: dict[int, Parts]) -> Parts:
    """Return the state of a process from what is shared and the strata that it owns now."""
    parts: Parts = {group: dict(tensors) for group, tensors in shared.items()}
    length = len(shards.own) * shards.strata.stride
    for number in shards.own:
        for group, tensors in strata[number].items():
            joined = parts.setdefault(group, {})
            for name, tensor in tensors.items():
                if name.partition(".")[0] != _ENTITY:
                    joined[f"{number}.{name}"] = tensor
                    continue
                if name not in joined:  # rows that only fill up a stratum stand where all do
                    fill = tensor.max() if tensor.dtype == torch.int32 else tensor.new_zeros(())
                    joined[name] = fill.expand(length, *tensor.shape[1:]).clone()
                joined[name][shards.rows(number)] = tensor
    return parts
