"""Choosing the device of a run."""

from __future__ import annotations

import torch

from nscaching.errors import UserError


def pick_device(name: str) -> torch.device:
    """Return the device for ``auto``, ``cpu``, ``cuda`` or ``mps``; refuse one that is absent."""
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(device for device, there in present.items() if there)
    if not present.get(name, False):
        usable = ", ".join(device for device, there in present.items() if there)
        raise UserError(f"device '{name}' is not available here; use auto or one of: {usable}.")
    return torch.device(name)
