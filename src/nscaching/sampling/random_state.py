"""Random numbers of a run that is resumed, perhaps on another kind of device."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def restore(generator: torch.Generator, state: Tensor) -> bool:
    """Give a generator its state back; return False where that is of another kind of device.

    Then its numbers begin anew, from a seed that is made of that state.
    """
    if len(state) == len(generator.get_state()):
        generator.set_state(state.cpu())
        return True
    digest = hashlib.sha256(state.cpu().numpy().tobytes()).digest()
    generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return False
